"""Generates the tables of the benchmark: `python -m benchmarks.datasets --root .bench a b8`.

A marker file describes each generated data set. A set that has a marker is not generated again.
`--scale` reduces the number of rows. It does not change columns, files or the size of stripes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from benchmarks.data import shapes
from benchmarks.data.tables import NAMESPACE, PYARROW_WRITER, TableFiller, local_path, open_catalog

SIZE_ROWS = (500_000, 1_000_000, 2_000_000, 10_000_000)


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """The description of a generated data set in its marker file."""

    name: str
    scale: float
    table_name: str
    rows: int
    """Rows that a scan must return."""
    stored_rows: int
    """Rows in the data files, including deleted rows."""
    data_files: int
    data_bytes: int
    seconds: float


def _scaled(rows: int, scale: float) -> int:
    return max(1, round(rows * scale))


def _build_a(filler: TableFiller, scale: float) -> None:
    for i in range(32):
        filler.parquet(shapes.events(i, _scaled(500_000, scale)))


def _build_b(filler: TableFiller, scale: float) -> None:
    # One call of the writer writes one row group, so all rows (4 GB) are in memory.
    rows = pa.concat_tables(shapes.documents(_scaled(9_400_000, scale)))
    filler.parquet([rows], **PYARROW_WRITER)


def _build_b8(filler: TableFiller, scale: float) -> None:
    filler.parquet(shapes.documents(_scaled(9_400_000, scale), chunks=30), **PYARROW_WRITER)


def _build_c(filler: TableFiller, scale: float) -> None:
    # The ORC writer checks the size of a stripe after each `batch_size` rows. With a stripe size of
    # one byte, each batch becomes a stripe.
    stripe_rows = _scaled(1_500_000, scale)
    chunks = shapes.log_lines(16 * stripe_rows, stripe_rows)
    filler.orc(chunks, batch_size=stripe_rows, stripe_size=1, compression="zstd")


def _build_cs(filler: TableFiller, scale: float) -> None:
    _build_tiny_stripes(filler, _scaled(500_000, scale), stripe_rows=100, code_width=8)


def _build_huge(filler: TableFiller, scale: float) -> None:
    _build_tiny_stripes(filler, _scaled(1_595_745, scale), stripe_rows=94, code_width=11)


def _build_tiny_stripes(
    filler: TableFiller, stripes: int, *, stripe_rows: int, code_width: int
) -> None:
    # Uncompressed, because a compressor buffers 64 kB that the writer does not count.
    chunks = shapes.readings(stripes * stripe_rows, code_width, 5_000 * stripe_rows)
    filler.orc(chunks, batch_size=stripe_rows, stripe_size=1)


def _build_d(filler: TableFiller, scale: float) -> None:
    for i in range(10):
        filler.parquet([shapes.wide(i, _scaled(100_000, scale))])


def _build_f(filler: TableFiller, scale: float) -> None:
    for i in range(8):
        filler.parquet([shapes.orders(i, _scaled(750_000, scale))])


def _build_g(filler: TableFiller, scale: float) -> None:
    # PyArrow closes a page only after `write_batch_size` values. With PyIceberg's 20,000, the wide
    # rows of a row group become one page of 500 MB, and readers must decode a page as a whole.
    options = {"write_batch_size": 8}
    for i in range(3):
        filler.parquet([shapes.skewed_mixed(i, _scaled(20_000, scale))], **options)
    filler.parquet(
        (shapes.skewed_runs(10 + i, _scaled(25_000, scale), _scaled(30, scale)) for i in range(4)),
        **options,
    )
    one_group = shapes.skewed_runs(20, _scaled(200_000, scale), _scaled(333, scale))
    filler.parquet([one_group], **options)


def _build_size(rows: int, variant: str) -> Callable[[TableFiller, float], None]:
    def build(filler: TableFiller, scale: float) -> None:
        chunks = shapes.events(0, _scaled(rows, scale))
        if variant == "orc":
            filler.orc(chunks, compression="zstd")
        elif variant == "java":
            # Iceberg Java drops a dictionary that does not save space after the first page. PyArrow
            # keeps 2 MB of it in each such column: more than the whole limit at 0.5M rows.
            filler.parquet(chunks, use_dictionary=["customer"])
        else:
            filler.parquet(chunks)

    return build


def _delete_one_percent(table: Table) -> int:
    from tests.support.delete_files import commit_position_deletes

    rng = np.random.default_rng(800)
    positions = {}
    for task in table.scan().plan_files():
        rows = task.file.record_count
        chosen = rng.choice(rows, size=max(1, rows // 100), replace=False)
        positions[task.file.file_path] = np.sort(chosen).tolist()
    commit_position_deletes(table, positions)
    return sum(map(len, positions.values()))


BUILDERS: dict[str, Callable[[TableFiller, float], None]] = {
    "a": _build_a,
    "b": _build_b,
    "b8": _build_b8,
    "c": _build_c,
    "cs": _build_cs,
    "d": _build_d,
    "e": _build_a,
    "f": _build_f,
    "g": _build_g,
    **{f"size_{rows}": _build_size(rows, "parquet") for rows in SIZE_ROWS},
    **{f"sizej_{rows}": _build_size(rows, "java") for rows in SIZE_ROWS},
    **{f"sizeo_{rows}": _build_size(rows, "orc") for rows in SIZE_ROWS},
    "huge": _build_huge,
}

# The set huge takes 3.8 GB and some minutes, so it must be named.
DEFAULT_SETS = tuple(name for name in BUILDERS if name != "huge")


def table_name(name: str, scale: float) -> str:
    """Return the table's name for a data set at a scale: `b8`, or `b8_x0p01`."""
    return name if scale == 1 else f"{name}_x{scale:g}".replace(".", "p").replace("-", "m")


def ensure(root: Path, name: str, scale: float = 1.0) -> DatasetInfo:
    """Generate a data set unless it exists, and return its description."""
    marker = root / "ready" / f"{table_name(name, scale)}.json"
    if marker.exists():
        return DatasetInfo(**json.loads(marker.read_text()))
    if name not in BUILDERS:
        raise ValueError(f"no data set {name!r}: choose from {', '.join(BUILDERS)}")
    info = _generate(root, name, scale)
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.write_text(json.dumps(asdict(info), indent=2) + "\n")
    return info


def _generate(root: Path, name: str, scale: float) -> DatasetInfo:
    began = time.perf_counter()
    target = table_name(name, scale)
    catalog = open_catalog(root)
    # An interrupted run may have left files.
    shutil.rmtree(root / "warehouse" / NAMESPACE / target, ignore_errors=True)
    filler = TableFiller(catalog, target)
    BUILDERS[name](filler, scale)
    table = filler.commit()
    deleted = _delete_one_percent(table) if name == "e" else 0
    files = [task.file for task in catalog.load_table((NAMESPACE, target)).scan().plan_files()]
    stored = sum(file.record_count for file in files)
    return DatasetInfo(
        name=name,
        scale=scale,
        table_name=target,
        rows=stored - deleted,
        stored_rows=stored,
        data_files=len(files),
        data_bytes=sum(local_path(file.file_path).stat().st_size for file in files),
        seconds=round(time.perf_counter() - began, 1),
    )


def main() -> None:
    """Generate the data sets named on the command line, or all except huge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=DEFAULT_SETS, metavar="SET", help="data sets")
    parser.add_argument("--root", type=Path, default=Path(".bench"), help="folder for data")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows")
    options = parser.parse_args()
    for name in options.sets:
        info = ensure(options.root.resolve(), name, options.scale)
        print(
            f"{info.table_name:>14}  {info.rows:>12,} rows  {info.data_files:>3} files  "
            f"{info.data_bytes / 1e6:>8,.1f} MB  generated in {info.seconds} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
