"""The processor time of short processes: imports, `--help`, and the first batch of a small table.

`python -m benchmarks.startup --repeat 9`. Each process runs alone, and the cases take turns. The
time is that of the process up to the end of its work, without the end of the interpreter. The
table shows the median, and its ratio to the case that it is compared with. `--json FILE` stores it.
`--modules` lists the packages whose imports take the most time in the case `icestream by name`.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import load_catalog

import icestream as ice

_CATALOG = "startup"
_TIME = "\nimport sys, time; sys.stdout.write(str(time.process_time()))"
_PYICEBERG_TABLE = """
from pyiceberg.catalog import load_catalog
table = load_catalog("startup").load_table("db.small")
"""
_CASES = {
    "import pyarrow": "import pyarrow",
    "import icestream": "import icestream",
    "icestream --help": """
import contextlib, io
from icestream.cli.main import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    sys = __import__("sys"); sys.argv = ["icestream", "--help"]; main()
""",
    "PyIceberg: load a table": _PYICEBERG_TABLE,
    "PyIceberg: first batch": _PYICEBERG_TABLE
    + "assert next(iter(table.scan().to_arrow_batch_reader())).num_rows",
    "icestream: first batch of PyIceberg's table": "import icestream as ice"
    + _PYICEBERG_TABLE
    + "assert next(iter(ice.scan(table))).num_rows",
    "icestream: first batch of a name": """
import icestream as ice
scan = ice.scan
from icestream.catalogs import load_table
assert next(iter(scan(load_table("db.small", "startup")))).num_rows
""",
}
_COMPARED = {
    "import icestream": ("import pyarrow", 0.5),
    "icestream --help": ("import pyarrow", 1.5),
    "icestream: first batch of PyIceberg's table": ("PyIceberg: first batch", 0.5),
    "icestream: first batch of a name": ("PyIceberg: first batch", 0.5),
}
_IMPORT = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\w+)")


def main() -> None:
    """Run all cases in turn, and print or store their times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=9, help="number of processes of each case")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--modules", action="store_true", help="list the packages imported")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environment = _small_table(Path(folder))
        if options.modules:
            _print_modules(environment)
            return
        seconds: dict[str, list[float]] = {name: [] for name in _CASES}
        for _ in range(options.repeat):
            for name, code in _CASES.items():
                seconds[name].append(float(_run(["-c", code + _TIME], environment).stdout))
    figures = _figures({name: statistics.median(times) for name, times in seconds.items()})
    for figure in figures:
        ratio = f"{figure['ratio']:.2f} (goal {figure['goal']})" if "ratio" in figure else ""
        print(f"{figure['case']:45} {figure['cpu_seconds']:7.3f}  {ratio}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))


def _small_table(folder: Path) -> dict[str, str]:
    """Create a table of 1,000 rows, and return the environment that configures its catalog."""
    prefix = f"PYICEBERG_CATALOG__{_CATALOG.upper()}__"
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
    }
    catalog = load_catalog(_CATALOG, **properties)
    catalog.create_namespace("db")
    rows = pa.table({"id": range(1000), "name": [f"name {n}" for n in range(1000)]})
    ice.append(catalog.create_table("db.small", rows.schema), rows)
    configured = {prefix + name.upper(): value for name, value in properties.items()}
    return {"PATH": "/usr/bin:/bin", "HOME": str(folder), **configured}


def _run(arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=True
    )


def _figures(medians: dict[str, float]) -> list[dict[str, object]]:
    figures: list[dict[str, object]] = []
    for name, cpu_seconds in medians.items():
        figures.append({"case": name, "cpu_seconds": cpu_seconds})
        if name in _COMPARED:
            base, goal = _COMPARED[name]
            figures[-1] |= {"base": base, "ratio": cpu_seconds / medians[base], "goal": goal}
    return figures


def _print_modules(environment: dict[str, str]) -> None:
    code = _CASES["icestream: first batch of a name"]
    listed = _run(["-X", "importtime", "-c", code], environment).stderr
    micros: Counter[str] = Counter()
    for line in listed.splitlines():
        if match := _IMPORT.match(line):
            micros[match[2]] += int(match[1])
    for package, total in micros.most_common(12):
        print(f"{package:20} {total / 1000:8.1f} ms")


if __name__ == "__main__":
    main()
