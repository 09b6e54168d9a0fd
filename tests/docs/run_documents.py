"""Run the code of documents, as their reader would: one process, one catalog, one Spark.

    python -m tests.docs.run_documents [--update] FOLDER DOCUMENT ...

Writes `results.json` into the folder: for each document what failed, by line. With `--update`, the
outputs that the documents show are written anew.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.docs.documents import REPOSITORY, Block, blocks_of, comparable, with_outputs

_SHELL_SIGNS = ("|", ">", "$(", "&&", ";")
ORDERS = 1_800


def main(folder: Path, documents: list[str], *, update: bool = False) -> None:
    _configure(folder)
    results: dict[str, Any] = {}
    for name in documents:
        work = folder / name.replace("/", "-").removesuffix(".md")
        work.mkdir()
        os.chdir(work)
        _fresh_tables()
        started = time.monotonic()
        outputs: list[str] | None = [] if update else None
        text = (REPOSITORY / name).read_text()
        environment = dict(os.environ)
        failed = _run(name, blocks_of(text), outputs)
        os.environ.clear()
        os.environ.update(environment)
        if outputs and not failed:
            (REPOSITORY / name).write_text(with_outputs(text, outputs))
        _stop_streams()
        results[name] = {"failed": failed, "seconds": round(time.monotonic() - started, 1)}
        (folder / "results.json").write_text(json.dumps(results))
    if "pyspark" in sys.modules:
        from pyspark.sql import SparkSession

        if (running := SparkSession.getActiveSession()) is not None:
            running.stop()


def _configure(folder: Path) -> None:
    """A default catalog, as PyIceberg's variables name it; before anything is imported."""
    conf = folder / "spark-conf"
    conf.mkdir(parents=True)
    (conf / "spark-defaults.conf").write_text("spark.sql.shuffle.partitions 2\n")
    os.environ.update(
        {
            "HOME": str(folder),
            "SPARK_CONF_DIR": str(conf),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}",
            "PYICEBERG_CATALOG__DEFAULT__TYPE": "sql",
            "PYICEBERG_CATALOG__DEFAULT__URI": f"sqlite:///{folder}/catalog.db",
            "PYICEBERG_CATALOG__DEFAULT__WAREHOUSE": f"file://{folder}/warehouse",
            # What `icestream demo` makes where README.md is run.
            "PYICEBERG_CATALOG__DEMO__TYPE": "sql",
            "PYICEBERG_CATALOG__DEMO__URI": f"sqlite:///{folder}/README/.demo/catalog.db",
            "PYICEBERG_CATALOG__DEMO__WAREHOUSE": f"file://{folder}/README/.demo/warehouse",
            "DLT_DATA_DIR": str(folder / "dlt"),
            "RUNTIME__DLTHUB_TELEMETRY": "false",
        }
    )


def _fresh_tables() -> None:
    """`shop.orders`, and nothing else."""
    import icestream as ice

    ice.scan  # noqa: B018  # before pyarrow
    import pyarrow as pa
    from pyiceberg.catalog import load_catalog

    with contextlib.closing(load_catalog("default")) as catalog:
        for namespace in catalog.list_namespaces():
            for table in catalog.list_tables(namespace):
                location = catalog.load_table(table).location()
                catalog.drop_table(table)
                shutil.rmtree(location.removeprefix("file://"))
        catalog.create_namespace_if_not_exists("shop")
        day = datetime(2026, 11, 1, tzinfo=UTC)
        numbers = range(ORDERS)
        rows = pa.table(
            {
                "id": pa.array(numbers, pa.int64()),
                "price": pa.array([n * 0.5 for n in numbers], pa.float64()),
                "country": [("NO", "SE", "DK")[n % 3] for n in numbers],
                "ts": pa.array([day + timedelta(hours=n % 480) for n in numbers]),
            }
        )
        table = catalog.create_table("shop.orders", rows.schema)
        for start in range(0, ORDERS, 600):
            ice.append(table, rows.slice(start, 600))


def _run(name: str, blocks: list[Block], outputs: list[str] | None = None) -> list[str]:
    """What failed; after that the rest of the document is not tried.

    Args:
        name: The document.
        blocks: Its blocks.
        outputs: Where to add the outputs that it shows, instead of comparing them.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks:
        if block.reason is not None:
            continue
        try:
            if block.language == "python":
                printed = _run_python(name, block, names)
            else:
                printed = "".join(_run_command(command) for command in block.commands())
            if block.output is not None and outputs is not None:
                outputs.append(printed)
            elif block.output is not None:
                assert comparable(printed) == comparable(block.output), f"it prints:\n{printed}"
        except BaseException:
            return [f"{name}, line {block.line}:\n{block.code}\n{traceback.format_exc()}"]
    return []


def _run_python(name: str, block: Block, names: dict[str, Any]) -> str:
    """Run a block, and return what it prints."""
    code = compile("\n" * (block.line - 1) + block.code, name, "exec")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, names)
    return printed.getvalue()


def _run_command(command: str) -> str:
    """Run a command and return what it prints: `icestream` alone in this process, else by bash."""
    if command.startswith("icestream ") and not any(sign in command for sign in _SHELL_SIGNS):
        from click.testing import CliRunner

        from icestream.cli.main import cli

        done = CliRunner().invoke(cli, shlex.split(command)[1:])
        assert done.exit_code == 0, f"{command}: {done.exit_code}\n{done.output}"
        return done.stdout
    ran = subprocess.run(["bash", "-c", f"set -eo pipefail; {command}"], capture_output=True)
    assert ran.returncode == 0, f"{command}: {ran.returncode}\n{ran.stderr.decode()}"
    return ran.stdout.decode()


def _stop_streams() -> None:
    if "pyspark" not in sys.modules:
        return
    from pyspark.sql import SparkSession

    if (running := SparkSession.getActiveSession()) is not None:
        for query in running.streams.active:
            query.stop()


if __name__ == "__main__":
    arguments = [each for each in sys.argv[1:] if each != "--update"]
    main(Path(arguments[0]).resolve(), arguments[1:], update="--update" in sys.argv)
