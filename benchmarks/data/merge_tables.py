"""Tables to merge into, which are restored before each case, and the streams to merge."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from benchmarks.data import columns as col

_BATCH_ROWS = 100_000
_WIDE_BATCH_ROWS = 5_000
_STEP = 7_368_787  # A prime that does not divide the size of a table: keys are distinct.


@dataclass(frozen=True, slots=True)
class Target:
    """A table.

    Attributes:
        name: Name of its folder.
        rows: Number of rows. Their keys count from 0.
        files: Number of files, ordered by key.
        columns: Number of columns.
        text_key: Whether the key has three columns, one of them text of 36 characters.
    """

    name: str
    rows: int
    files: int = 100
    columns: int = 5
    text_key: bool = False

    @property
    def batch_rows(self) -> int:
        return _BATCH_ROWS if self.columns < 50 else _WIDE_BATCH_ROWS

    def batch(self, keys: np.ndarray, *, pooled: bool = False) -> pa.RecordBatch:
        """Return rows with the given keys. All rows of a stream have values from one pool."""
        key = self._key(keys)
        values = _pooled_values(self) if pooled else _values(self, 2 + int(keys[0]))
        columns = [column.slice(0, len(keys)) for column in values.columns]
        return pa.RecordBatch.from_arrays(
            [*key.values(), *columns], names=[*key, *values.schema.names]
        )

    def _key(self, keys: np.ndarray) -> dict[str, pa.Array]:
        if not self.text_key:
            return {"id": pa.array(keys)}
        texts = [f"{k:08x}-{k * 31 % 65536:04x}-4000-8000-{k:012x}" for k in keys.tolist()]
        regions = pa.array((keys % 7).astype(np.int32))
        return {"id": pa.array(keys), "code": pa.array(texts), "region": regions}

    def schema(self) -> pa.Schema:
        """Return the schema of the batches."""
        return self.batch(np.arange(1), pooled=True).schema

    def file_batches(self) -> Iterator[list[pa.RecordBatch]]:
        """Yield the rows, file by file."""
        per_file = -(-self.rows // self.files)
        for first in range(0, self.rows, per_file):
            last = min(self.rows, first + per_file)
            starts = range(first, last, self.batch_rows)
            yield [self.batch(np.arange(s, min(last, s + self.batch_rows))) for s in starts]


@cache
def _pooled_values(target: Target) -> pa.RecordBatch:
    """Return the values of a batch. They are generated once, so that streams cost little."""
    return _values(target, 1)


def _values(target: Target, seed: int) -> pa.RecordBatch:
    """Return all columns of a batch except the key."""
    rng, count = np.random.default_rng([400, seed]), target.batch_rows
    data = {
        "amount": col.amounts(rng, count),
        "customer": col.words(rng, count),
        "active": col.flags(rng, count),
        "created_at": col.timestamps(rng, count),
    }
    for extra in range(len(data) + 1, target.columns):
        make = (col.doubles, col.amounts)[extra % 2] if extra % 8 else col.words
        data[f"c{extra}"] = make(rng, count)
    return pa.RecordBatch.from_pydict(data)


@dataclass(frozen=True, slots=True)
class Source:
    """A stream to merge.

    Attributes:
        rows: Number of rows. One in ten has a key that is not in the table.
        clustered: Whether the keys are consecutive.
    """

    rows: int
    clustered: bool = False

    def batches(self, target: Target) -> Iterator[pa.RecordBatch]:
        """Yield the stream for a table. It is the same on every call."""
        for first in range(0, self.rows, target.batch_rows):
            numbers = np.arange(first, min(self.rows, first + target.batch_rows))
            step = 1 if self.clustered else _STEP
            keys = (numbers * step + target.rows // 3) % target.rows
            new = numbers % 10 == 9
            keys[new] = target.rows + numbers[new]
            yield target.batch(keys, pooled=True)

    def reader(self, target: Target) -> pa.RecordBatchReader:
        """Return the stream as a reader."""
        return pa.RecordBatchReader.from_batches(target.schema(), self.batches(target))


class Prepared:
    """A table in its own folder, which can be restored.

    Args:
        root: Folder of the benchmark.
        target: The table.
    """

    def __init__(self, root: Path, target: Target) -> None:
        self.folder = root / "merge" / f"{target.name}-{target.rows}"
        self._target = target
        self._facts = self.folder / "made.json"
        self._made = self.folder / "catalog.made.db"

    def restore(self) -> None:
        """Create the table, or undo changes to it."""
        facts = asdict(self._target)
        if not self._facts.exists() or json.loads(self._facts.read_text())["target"] != facts:
            self._make(facts)
        shutil.copy(self._made, self.folder / "catalog.db")
        files = set(json.loads(self._facts.read_text())["files"])
        for path in (self.folder / "warehouse").rglob("*"):
            if path.is_file() and str(path) not in files:
                path.unlink()

    def table(self) -> Table:
        """Load the table."""
        return self._catalog().load_table("bench.t")

    def _catalog(self) -> SqlCatalog:
        return SqlCatalog(
            "bench",
            uri=f"sqlite:///{self.folder}/catalog.db",
            warehouse=f"file://{self.folder}/warehouse",
        )

    def _make(self, facts: dict[str, object]) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        import icestream as ice  # not installed in the environment of the peers

        catalog = self._catalog()
        catalog.create_namespace("bench")
        table = catalog.create_table("bench.t", self._target.schema())
        files = [ice.write_files(table, batches) for batches in self._target.file_batches()]
        ice.commit_files(table, [file for written in files for file in written])
        catalog.close()
        assert len(files) == self._target.files
        shutil.copy(self.folder / "catalog.db", self._made)
        files = [str(path) for path in (self.folder / "warehouse").rglob("*") if path.is_file()]
        self._facts.write_text(json.dumps({"target": facts, "files": files}))
