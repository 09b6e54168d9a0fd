"""`icestream demo` loads, changes and reads a table, and compares the memory with PyIceberg's."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from icestream.cli.command import command
from icestream.cli.commands.run import ShownLoads, report_text
from icestream.cli.options.settings import Settings
from icestream.cli.output.progress import Counts, Progress
from icestream.cli.output.text import can_draw, columns, print_lines, seconds, size

if TYPE_CHECKING:
    from icestream.cli.demo.demo_folder import DemoFolder
    from icestream.cli.demo.memory_trace import MemoryTrace, Reader
    from icestream.cli.demo.order_files import OrderFiles
    from icestream.pipeline.reports.run_report import RunReport

_ENGINES = {"spark": "on embedded Spark", "local": "in this process"}


@command(
    "demo",
    short_help="Load and read demo tables, and compare memory with PyIceberg.",
    examples=(
        "icestream demo",
        "icestream demo --rows 20000 --engine local --memory 64MB",
    ),
    memory=True,
)
@click.option(
    "--rows",
    type=click.IntRange(1000),
    metavar="N",
    default=2_000_000,
    show_default=True,
    help="Number of orders to generate.",
)
@click.option(
    "--engine",
    type=click.Choice(["auto", *_ENGINES]),
    default="auto",
    show_default=True,
    help="Load on a Spark session that the demo starts, or in this process. auto chooses Spark if "
    "PySpark is installed.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=".demo",
    show_default=True,
    help="Folder for all files of the demo. Files of an earlier demo are deleted.",
)
def demo(settings: Settings, rows: int, engine: str, folder: Path) -> None:
    """Generate five days of orders, and load them with a pipeline: append, merge, replace.

    The demo then reads the table with icestream inside --memory, and with PyIceberg, each in its
    own process. It draws the memory of both over time. At the end it prints commands to explore the
    tables. The demo has its own catalog and does not touch yours.
    """
    from icestream.cli.demo.demo_folder import DemoFolder
    from icestream.memory.budget import DEFAULT_MEMORY

    engine = _chosen_engine(settings, engine)
    began = time.monotonic()
    _Demo(settings, DemoFolder(folder), engine, settings.memory or DEFAULT_MEMORY).run(rows, began)


def _chosen_engine(settings: Settings, engine: str) -> str:
    """Choose the engine, and fail at once if a package that it needs is missing."""
    from icestream.spark.setup.installed import pyspark_module, why_no_spark
    from icestream.write.rules.duckdb_query import duckdb_module

    missing = why_no_spark()
    if engine == "auto":
        engine = "local" if missing else "spark"
        why = missing or "PySpark is installed"
        settings.say(f"the demo loads {_ENGINES[engine]}, because {why}")
    if engine == "spark":
        pyspark_module()
    else:
        duckdb_module("the demo in this process", "install PySpark: pip install 'icestream[spark]'")
    return engine


class _Demo:
    """Runs the parts of the demo in order. Each part prints its result, unless `--json` is set."""

    def __init__(self, settings: Settings, folder: DemoFolder, engine: str, memory: str) -> None:
        self._settings = settings
        self._folder = folder
        self._engine = engine
        self._memory = memory

    def run(self, rows: int, began: float) -> None:
        from icestream.memory.budget import parse_bytes

        limit_bytes = parse_bytes(self._memory)
        self._folder.renew()
        orders = self._generate(rows)
        report = self._load()
        ours, theirs = self._read("icestream"), self._read("pyiceberg")
        self._draw(ours, theirs, limit_bytes)
        took = time.monotonic() - began
        commands = _commands(self._folder)
        self._print("", f"4. The demo took {seconds(took)}. Explore its tables:", "", *commands)
        document = {
            "folder": str(self._folder.path),
            "orders": orders.orders,
            "changes": orders.changes,
            "run": report.to_dict(),
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
        """Show the counts that the block updates."""
        counts: dict[str, Any] = {"rows": 0}
        with Progress(what, lambda: Counts(**counts), shown=not self._settings.quiet):
            yield counts

    def _generate(self, rows: int) -> OrderFiles:
        from icestream.cli.demo.order_files import DAYS, make_order_files

        with self._shown("generate orders") as counts:
            orders = make_order_files(
                self._folder.data, rows, on_rows=lambda count: counts.update(rows=count)
            )
        self._print(
            f"1. Generated {orders.orders:,} orders of {DAYS} days and {orders.changes:,} changes: "
            f"{orders.files} Parquet files, {size(orders.bytes)}, in {_near(self._folder.data)}"
        )
        return orders

    def _load(self) -> RunReport:
        import icestream as ice

        progress = ice.LoadProgress()
        self._print(
            "",
            f"2. Run {_near(self._folder.pipeline)} {_ENGINES[self._engine]}: append, merge, "
            "replace. Each load is one snapshot, published if its tests pass",
        )
        with (
            closing(self._folder.open_catalog()) as catalog,
            _spark_ended_after(),
            ShownLoads(self._settings, progress) as shown,
        ):
            report = ice.run(
                self._folder.pipeline,
                catalog=catalog,
                variables={"ENGINE": self._engine, "MEMORY": self._memory},
                state=self._folder.state,
                on_load=shown.on_load,
                progress=progress,
            )
        self._print("", *report_text(report))
        return report

    def _read(self, reader: Reader) -> MemoryTrace:
        from icestream.cli.demo.demo_folder import TABLE
        from icestream.cli.demo.memory_trace import trace_read

        with closing(self._folder.open_catalog()) as catalog:
            metadata_file = catalog.load_table(TABLE).metadata_location
        with self._shown(f"read {TABLE} with {reader}") as counts:
            return trace_read(
                reader,
                metadata_file,
                memory=self._memory,
                on_sample=lambda sample: counts.update(rows=sample.rows),
            )

    def _draw(self, ours: MemoryTrace, theirs: MemoryTrace, limit_bytes: int) -> None:
        from icestream.cli.demo.memory_picture import BLOCKS, mb, svg_picture, text_picture

        self._folder.picture.write_text(svg_picture(ours, theirs, limit_bytes), "utf-8")
        same = "the same rows" if _same(ours, theirs) else "NOT the same rows: please report this"
        header = ("reader", "rows", "time", "first batch", "peak memory", "process grew by")
        rows = [
            (
                name,
                trace.rows,
                seconds(trace.seconds),
                seconds(trace.first_batch_seconds),
                f"{mb(trace.arrow_peak_bytes)}{limit}",
                mb(trace.grown_peak_bytes),
            )
            for name, trace, limit in (
                ("icestream", ours, f" of {mb(limit_bytes)}"),
                ("PyIceberg", theirs, ", no limit"),
            )
        ]
        self._print(
            "",
            f"3. Read shop.orders back, each reader in its own process: {same}",
            "",
            *columns(header, rows),
            "",
            f"peak memory {mb(ours.arrow_peak_bytes)} of {mb(limit_bytes)}; PyIceberg's is "
            f"{mb(theirs.arrow_peak_bytes)}",
            "memory of the processes over time:",
            *text_picture(ours, theirs, limit_bytes, plain=not can_draw(BLOCKS)),
            f"as a picture: {_near(self._folder.picture)}",
        )


@contextmanager
def _spark_ended_after() -> Iterator[None]:
    """Stop the Spark session that the block starts, so that it does not disturb the reads."""
    before = _running_spark()
    try:
        yield
    finally:
        started = _running_spark()
        if started is not None and before is None:
            started.stop()


def _running_spark() -> Any:
    if sys.modules.get("pyspark") is None:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _same(ours: MemoryTrace, theirs: MemoryTrace) -> bool:
    return (ours.rows, ours.sum_of_ids) == (theirs.rows, theirs.sum_of_ids)


def _commands(folder: DemoFolder) -> list[str]:
    """Return commands that can be pasted into a shell in the working directory."""
    from icestream.cli.demo.demo_folder import CATALOG, TABLE

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
    """Return the command that starts this program in a shell."""
    here = Path(sys.executable).parent / "icestream"
    on_path = shutil.which("icestream")
    if on_path is not None and os.path.realpath(on_path) == os.path.realpath(here):
        return "icestream"
    if here.exists():
        return _near(here)
    return f"{shlex.quote(sys.executable)} -m icestream"


def _near(path: Path) -> str:
    """Quote a path for a shell, relative to the working directory if it is below it."""
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
