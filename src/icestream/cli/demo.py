"""`icestream demo`: a table is loaded, changed, replaced and read, beside PyIceberg."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from icestream.cli.command import command
from icestream.cli.output import can_draw, columns, print_lines, seconds, size
from icestream.cli.progress import Counts, Progress
from icestream.cli.run import ShownLoads, report_text
from icestream.cli.settings import Settings

if TYPE_CHECKING:
    from icestream.demo.demo_folder import DemoFolder
    from icestream.demo.memory_trace import MemoryTrace, Reader
    from icestream.demo.order_files import OrderFiles
    from icestream.pipeline.run_report import RunReport

_ENGINES = {"spark": "on embedded Spark", "local": "in this process"}


@command(
    "demo",
    short_help="Load, change and read a table, beside PyIceberg.",
    examples=(
        "icestream demo",
        "icestream demo --rows 20000 --engine local --memory 64MB",
    ),
    memory=True,
)
@click.option("--rows", type=click.IntRange(1000), default=2_000_000, show_default=True)
@click.option(
    "--engine",
    type=click.Choice(list(_ENGINES)),
    default="spark",
    help="What loads: Spark, which is started here; or this process.  [default: spark]",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=".demo",
    show_default=True,
    help="Where all of it goes; what an earlier demo left there is deleted.",
)
def demo(settings: Settings, rows: int, engine: str, folder: Path) -> None:
    """Make orders of five days and load them with a pipeline: append, merge, replace.

    Then the table is read inside --memory, beside plain PyIceberg in a process of its own, and
    their memory over time is drawn. At the end come commands to explore what it made. The first
    line of each part says where things are; catalogs that you have are not touched.
    """
    from icestream.demo.demo_folder import DemoFolder
    from icestream.memory import DEFAULT_MEMORY

    if engine == "spark":
        from icestream.spark.installed import pyspark_module

        pyspark_module()  # missing it is said before minutes of work
    began = time.monotonic()
    _Demo(settings, DemoFolder(folder), engine, settings.memory or DEFAULT_MEMORY).run(rows, began)


class _Demo:
    """The parts, in order. Each prints what it comes to, unless there is one document."""

    def __init__(self, settings: Settings, folder: DemoFolder, engine: str, memory: str) -> None:
        self._settings = settings
        self._folder = folder
        self._engine = engine
        self._memory = memory

    def run(self, rows: int, began: float) -> None:
        from icestream.memory import parse_bytes

        limit_bytes = parse_bytes(self._memory)
        self._folder.renew()
        made = self._make(rows)
        loaded = self._load()
        ours, theirs = self._read("icestream"), self._read("pyiceberg")
        self._draw(ours, theirs, limit_bytes)
        took = time.monotonic() - began
        commands = _commands(self._folder)
        self._print(
            "",
            f"4. All of it took {seconds(took)}. Explore what it made:",
            "",
            *commands,
        )
        document = {
            "folder": str(self._folder.path),
            "orders": made.orders,
            "changes": made.changes,
            "run": loaded.to_dict(),
            "memory_limit_bytes": limit_bytes,
            "reads": [ours.to_dict(), theirs.to_dict()],
            "same_rows": _same(ours, theirs),
            "picture": str(self._folder.picture),
            "commands": commands,
            "seconds": took,
        }
        self._settings.show(document, list)

    def _print(self, *lines: str) -> None:
        if not self._settings.json:
            print_lines(lines)

    @contextmanager
    def _shown(self, what: str) -> Iterator[dict[str, Any]]:
        """Show counts that the block keeps."""
        counts: dict[str, Any] = {"rows": 0}
        with Progress(what, lambda: Counts(**counts), shown=not self._settings.quiet):
            yield counts

    def _make(self, rows: int) -> OrderFiles:
        from icestream.demo.order_files import DAYS, make_order_files

        with self._shown("make orders") as counts:
            made = make_order_files(
                self._folder.data, rows, on_rows=lambda count: counts.update(rows=count)
            )
        self._print(
            f"1. Made {made.orders:,} orders of {DAYS} days and {made.changes:,} changes to them: "
            f"{made.files} Parquet files, {size(made.bytes)}, in {_near(self._folder.data)}"
        )
        return made

    def _load(self) -> RunReport:
        import icestream as ice

        progress = ice.LoadProgress()
        self._print(
            "",
            f"2. Run {_near(self._folder.pipeline)} {_ENGINES[self._engine]}: append, merge, "
            "replace; each one snapshot, published when its tests hold",
        )
        catalog = self._folder.open_catalog()
        try:
            with _spark_ended_after(), ShownLoads(self._settings, progress) as shown:
                report = ice.run(
                    self._folder.pipeline,
                    catalog=catalog,
                    variables={"ENGINE": self._engine, "MEMORY": self._memory},
                    state=self._folder.state,
                    on_load=shown.on_load,
                    progress=progress,
                )
        finally:
            catalog.close()
        self._print("", *report_text(report))
        return report

    def _read(self, reader: Reader) -> MemoryTrace:
        from icestream.demo.demo_folder import TABLE
        from icestream.demo.memory_trace import Sample, trace_read

        catalog = self._folder.open_catalog()
        try:
            metadata_file = catalog.load_table(TABLE).metadata_location
        finally:
            catalog.close()
        with self._shown(f"read {TABLE} with {reader}") as counts:

            def keep(sample: Sample) -> None:
                counts.update(rows=sample.rows)

            return trace_read(reader, metadata_file, memory=self._memory, on_sample=keep)

    def _draw(self, ours: MemoryTrace, theirs: MemoryTrace, limit_bytes: int) -> None:
        from icestream.demo.memory_picture import BLOCKS, svg_picture, text_picture

        self._folder.picture.write_text(svg_picture(ours, theirs, limit_bytes), "utf-8")
        same = "the same rows" if _same(ours, theirs) else "NOT the same rows: please report this"
        header = ("reader", "rows", "time", "first batch", "peak memory", "process grew by")
        rows = [
            (
                name,
                trace.rows,
                seconds(trace.seconds),
                seconds(trace.first_batch_seconds),
                f"{_mb(trace.arrow_peak_bytes)}{limit}",
                _mb(trace.grown_peak_bytes),
            )
            for name, trace, limit in (
                ("icestream", ours, f" of {_mb(limit_bytes)}"),
                ("PyIceberg", theirs, ", no limit"),
            )
        ]
        self._print(
            "",
            f"3. Read shop.orders back, each reader in its own process: {same}",
            "",
            *columns(header, rows),
            "",
            f"peak memory {_mb(ours.arrow_peak_bytes)} of {_mb(limit_bytes)}; PyIceberg's is "
            f"{_mb(theirs.arrow_peak_bytes)}",
            "memory that the process took, over time:",
            *text_picture(ours, theirs, limit_bytes, plain=not can_draw(BLOCKS)),
            f"the same as a picture: {_near(self._folder.picture)}",
        )


@contextmanager
def _spark_ended_after() -> Iterator[None]:
    """End the Spark that the block starts: nothing else is to run beside the reads."""
    before = _running_spark()
    try:
        yield
    finally:
        started = _running_spark()
        if started is not None and before is None:
            started.stop()


def _running_spark() -> Any:
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _same(ours: MemoryTrace, theirs: MemoryTrace) -> bool:
    return (ours.rows, ours.sum_of_ids) == (theirs.rows, theirs.sum_of_ids)


def _commands(folder: DemoFolder) -> list[str]:
    """What can be pasted, in this folder."""
    from icestream.demo.demo_folder import CATALOG, TABLE

    program, pipeline, state = _program(), _near(folder.pipeline), _near(folder.state)
    return [
        f"export PYICEBERG_HOME={shlex.quote(str(folder.path))}",
        f"{program} tables --catalog {CATALOG}",
        f"{program} scan {TABLE} --catalog {CATALOG} --columns order_id,order_date,price,status "
        "--where \"country = 'NO' and status = 'cancelled'\" --limit 10",
        f"{program} scan shop.daily --catalog {CATALOG} --limit 10",
        f"{program} health {TABLE} --catalog {CATALOG}",
        f"{program} run {pipeline} --state {state} --dry-run",
    ]


def _program() -> str:
    """What starts this program in a shell."""
    here = Path(sys.executable).parent / "icestream"
    found = shutil.which("icestream")
    if found is not None and os.path.realpath(found) == os.path.realpath(here):
        return "icestream"
    if here.exists():
        return _near(here)
    return f"{shlex.quote(sys.executable)} -m icestream"


def _near(path: Path) -> str:
    """The path from here, quoted for a shell, if that is shorter."""
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


def _mb(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
