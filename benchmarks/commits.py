"""Many small appends to one table: what the tenth, the hundredth, the thousandth commit costs.

`python -m benchmarks.commits`. Each engine runs in a process of its own. Times are CPU seconds: the
machine may do other things. Afterwards the process plans a scan of the table.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks.measure.baseline import commits, engine_label, source_folder
from benchmarks.measure.runner import REPOSITORY

MARKS = (10, 100, 300, 1000)
AROUND = 9  # The median of this many commits before and after the mark evens out noise.


def main() -> None:
    """Run all engines, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--appends", type=int, default=1010, help="number of commits")
    parser.add_argument("--engines", default="pyiceberg,icestream")
    parser.add_argument("--baseline", help="also measure icestream at this commit")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(_run(options.case, options.appends)))
        return
    marks = [mark for mark in MARKS if mark <= options.appends]
    heads = [f"append {mark}, ms" for mark in marks]
    print("| engine |", " | ".join(heads), "| plan, ms | manifests |")
    print("|---|", "---|" * (len(marks) + 2), sep="")
    for engine in options.engines.split(","):
        for baseline in commits(engine, options.baseline):
            result = _in_process(engine, baseline, options.appends)
            cells = [f"{1000 * _around(result['seconds'], mark):.0f}" for mark in marks]
            cells += [f"{1000 * result['plan']:.0f}", str(result["manifests"])]
            print(f"| {engine_label(engine, baseline)} |", " | ".join(cells), "|", flush=True)


def _in_process(engine: str, baseline: str | None, appends: int) -> dict[str, Any]:
    source = source_folder(baseline) if baseline else REPOSITORY / "src"
    command = [sys.executable, "-m", "benchmarks.commits", "--case", engine]
    environment = {**os.environ, "PYTHONPATH": f"{source}:{REPOSITORY}"}
    done = subprocess.run(
        [*command, "--appends", str(appends)],
        env=environment,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _around(seconds: list[float], mark: int) -> float:
    return statistics.median(seconds[max(0, mark - AROUND) : mark + AROUND])


def _run(engine: str, appends: int) -> dict[str, Any]:
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    import icestream as ice

    rows = pa.table({"id": [1, 2], "name": ["a", "b"]})
    with tempfile.TemporaryDirectory() as folder:
        catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
        catalog.create_namespace("bench")
        table = catalog.create_table("bench.commits", rows.schema)
        append: Callable[[], object] = lambda: ice.append(table, rows)  # noqa: E731
        if engine == "pyiceberg":
            append = lambda: table.append(rows)  # noqa: E731
        seconds = []
        for _ in range(appends):
            began = time.process_time()
            append()
            seconds.append(time.process_time() - began)
        began = time.process_time()
        if engine == "pyiceberg":
            files = len(list(table.scan().plan_files()))
        else:
            files = len(ice.scan(table).splits())
        plan = time.process_time() - began
        assert files == appends, "files are missing in the plan"
        manifests = table.inspect.manifests().num_rows
        catalog.close()
    return {"seconds": seconds, "plan": plan, "manifests": manifests}


if __name__ == "__main__":
    main()
