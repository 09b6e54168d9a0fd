"""One flipped bit in a file of a table: the rows are right, or a typed error says what is damaged.

Pages and footers of Parquet files that icestream writes have checksums, and so have deletion
vectors: damage there must never give other rows. ORC files, Avro manifests, JSON metadata and the
footers of Puffin files have none, whoever writes them: of them it is asked that whatever is noticed
is a typed error, and that nothing crashes or hangs.
"""

from __future__ import annotations

import shutil
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

import icestream as ice
from icestream.catalogs.lookup import load_table
from tests.support.catalogs import make_catalog
from tests.support.delete_files import commit_deletion_vectors
from tests.support.loads import BY_PART, make_table
from tests.support.stored import folder_of
from tests.support.tables import add_orc_file, data_file_paths, upgrade_to_v3
from tests.torture.attack import Settings, Verdict
from tests.torture.child import ChildDiedError, answer
from tests.torture.operation import Operation, Rows, read_rows

_FAULTS = 80
_FLIP_SECONDS = 120
_TABLES = ("db.plain", "db.vectors", "db.orc")
# Where in which files, and whether damage there must be noticed.
_KINDS = {
    "pages of data": True,
    "pages of deletes": True,
    "deletion vectors": True,
    "footers": True,
    "puffin footers": False,
    "orc": False,
    "manifests": False,
    "metadata": False,
}


@dataclass(frozen=True, slots=True)
class Flip:
    """A bit to be flipped.

    Attributes:
        kind: Kind of the file or part.
        path: The file.
        offset: The byte in it.
        bit: The bit in that.
        table: The table that has the file.
    """

    kind: str
    path: str
    offset: int
    bit: int
    table: str

    def __str__(self) -> str:
        return f"{self.kind}: bit {self.bit} of byte {self.offset} of {self.path}"

    def apply(self) -> None:
        """Flip it; a second time sets it back."""
        with open(self.path, "r+b") as file:
            file.seek(self.offset)
            (value,) = file.read(1)
            file.seek(self.offset)
            file.write(bytes([value ^ (1 << self.bit)]))


def attack(settings: Settings) -> Verdict:
    """Flip bits, one at a time, and read; or change the table, too."""
    verdict = Verdict()
    folder = settings.folder / "bit-flips"
    folder.mkdir()
    files = answer(lambda: _made(folder))
    kept = settings.folder / "bit-flips-kept"
    shutil.copytree(folder, kept)
    random = settings.random("bit-flips")
    for number in range(settings.faults(_FAULTS)):
        flip = _drawn(random, files)
        flip.apply()
        changes = number % 4 == 3
        outcome = _outcome(folder, flip, f"{random.random()}" if changes else None)
        if changes:
            shutil.rmtree(folder)
            shutil.copytree(kept, folder)
        else:
            flip.apply()
        verdict.faults += 1
        word = outcome.partition(":")[0]
        verdict.add([], {f"{flip.kind} {word}": 1})
        if word == "died" or word == "untyped" or (word == "wrong" and _KINDS[flip.kind]):
            verdict.problems.append(f"{flip}: {outcome}")
    return verdict


def _outcome(folder: Path, flip: Flip, changed_by: str | None) -> str:
    work: Callable[[], str]
    if changed_by is None:
        work = lambda: _read(folder, flip.table)  # noqa: E731
    else:
        work = lambda: _changed(folder, flip, changed_by)  # noqa: E731
    try:
        return str(answer(work, timeout_seconds=_FLIP_SECONDS))
    except ChildDiedError as error:
        return f"died: {error}"


def _read(folder: Path, name: str) -> str:
    """Read a damaged table."""
    with _opened(folder) as catalog:
        try:
            scan = ice.scan(load_table(name, catalog), memory="64MB")
            if not {"id", "part", "text"} <= set(scan.schema.names):
                return "wrong: other columns"  # a flipped key of the JSON, such as "fields"
            rows = read_rows(scan)
        except ice.IcestreamError as error:
            return f"noticed: {error!r}"
        except UnicodeDecodeError:
            return "wrong: a text that is not valid UTF-8"
        except Exception as error:
            return f"untyped: {error!r}"
        return "harmless" if rows == _expected() else "wrong: other rows"


def _changed(folder: Path, flip: Flip, seed: str) -> str:
    """Change a damaged table, take the damage back, and look what was made of it."""
    random = Random(seed)
    with _opened(folder) as catalog:
        verbs = ("compact", "delete", "merge", "overwrite_where", "append")
        while (operation := Operation.draw(random, "late", partitioned=True)).verb not in verbs:
            continue
        expected = _expected()
        try:
            table = load_table(flip.table, catalog)
            if operation.run(table):
                expected = operation.applied(expected)
            word = "harmless"
        except ice.IcestreamError as error:
            word = f"noticed: {error!r}"
        except Exception as error:
            return f"untyped: {operation.verb}: {error!r}"
        if Path(flip.path).exists():
            flip.apply()
        rows = read_rows(ice.scan(catalog.load_table(flip.table), memory="64MB"))
        return word if rows == expected else f"wrong: rows after {operation.verb}"


class _opened:  # noqa: N801
    def __init__(self, folder: Path) -> None:
        self._catalog = make_catalog(folder)

    def __enter__(self) -> Catalog:
        return self._catalog

    def __exit__(self, *exception: object) -> None:
        self._catalog.close()


# The tables


_FIRST = Operation("first", "append", ids=tuple(range(300)))
_SECOND = Operation("second", "append", ids=tuple(range(300, 400)))
_GONE = Operation("gone", "delete", low=50, high=90)


def _expected() -> Rows:
    rows: Rows = Counter()
    for operation in (_FIRST, _SECOND, _GONE):
        rows = operation.applied(rows)
    return rows


def _made(folder: Path) -> list[tuple[str, str]]:
    """Make the tables; return their files, each with its table."""
    with _opened(folder) as catalog:
        plain = _table(catalog, _TABLES[0])
        _GONE.run(plain)
        vectors = _table(catalog, _TABLES[1])
        gone = _positions(vectors)
        upgrade_to_v3(vectors)
        commit_deletion_vectors(vectors, gone)
        orc = make_table(catalog, _TABLES[2], **_ON_READ)
        add_orc_file(orc, pa.concat_tables([_FIRST.arrow(), _SECOND.arrow()]))
        _GONE.run(orc)
        for name in _TABLES:
            assert read_rows(ice.scan(catalog.load_table(name))) == _expected(), name
        return [
            (str(path), name)
            for name in _TABLES
            for path in sorted(folder_of(catalog.load_table(name)).rglob("*"))
            if path.is_file() and _is_used(catalog.load_table(name), path)
        ]


_ON_READ = {"write__delete__mode": "merge-on-read"}


def _table(catalog: Catalog, name: str) -> Table:
    table = make_table(catalog, name, spec=BY_PART, **_ON_READ)
    for operation in (_FIRST, _SECOND):
        operation.run(table)
    return table


def _positions(table: Table) -> dict[str, list[int]]:
    """Where the rows are that `_GONE` deletes."""
    found: dict[str, list[int]] = {path: [] for path in data_file_paths(table)}
    for batch in ice.scan(table, metadata_columns=["_file", "_pos"]):
        for row in batch.to_pylist():
            if _GONE.low <= row["id"] < _GONE.high:
                found[row["_file"]].append(row["_pos"])
    return {path: positions for path, positions in found.items() if positions}


def _is_used(table: Table, path: Path) -> bool:
    """Old metadata is not read."""
    if not path.name.endswith(".metadata.json"):
        return True
    return table.metadata_location.endswith(path.name)


def _drawn(random: Random, files: list[tuple[str, str]]) -> Flip:
    """A place of one kind, each as likely as the others."""
    kind = random.choice(list(_KINDS))
    while True:
        path, table = random.choice(files)
        begin, end = _range(kind, Path(path))
        if begin < end:
            return Flip(kind, path, random.randrange(begin, end), random.randrange(8), table)


def _range(kind: str, path: Path) -> tuple[int, int]:
    """Which bytes of a file are of a kind; none if it is not of it."""
    size = path.stat().st_size
    if path.suffix == ".parquet":
        footer = _footer_begin(path)
        deletes = "deletes" in path.name
        if kind == ("pages of deletes" if deletes else "pages of data"):
            return 4, footer
        return (footer, size) if kind == "footers" else (0, 0)
    if path.suffix == ".puffin":
        footer = path.read_bytes().rindex(b"PFA1", 0, size - 4)
        if kind == "deletion vectors":
            return 4, footer
        return (footer, size) if kind == "puffin footers" else (0, 0)
    of = {".orc": "orc", ".avro": "manifests", ".json": "metadata"}
    return (0, size) if of.get(path.suffix) == kind else (0, 0)


def _footer_begin(path: Path) -> int:
    tail = path.read_bytes()[-8:]
    return path.stat().st_size - 8 - int(struct.unpack("<I", tail[:4])[0])
