"""Which delete files apply to a data file, from memory and from disk, against a plain model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import DATA_FILE_TYPE, DataFile, DataFileContent, FileFormat, ManifestEntry
from pyiceberg.typedef import Record

from icestream.errors import MemoryBudgetError, UnsupportedFeatureError
from icestream.memory.budget import MemoryBudget
from icestream.read.deletes.delete_index import DeleteIndex

_PATH_FIELD_ID = 2147483546
_SPEC_FIELDS = {0: 0, 1: 1, 2: 1}


@dataclass(frozen=True)
class _Delete:
    path: str
    sequence: int
    spec_id: int
    partition: tuple[Any, ...]
    equality: bool = False
    lower: str | None = None
    upper: str | None = None
    referenced: str | None = None

    def entry(self) -> ManifestEntry:
        bounds = [None if b is None else {_PATH_FIELD_ID: b.encode()} for b in self._bounds()]
        file = DataFile.from_args(
            _table_format_version=3,
            content=DataFileContent(2 if self.equality else 1),
            file_path=self.path,
            file_format=FileFormat.PUFFIN if self.referenced else FileFormat.PARQUET,
            partition=Record(*self.partition),
            record_count=7,
            file_size_in_bytes=1234,
            lower_bounds=bounds[0],
            upper_bounds=bounds[1],
            referenced_data_file=self.referenced,
        )
        assert len(file) == len(DATA_FILE_TYPE[3].fields)
        file.spec_id = self.spec_id
        return ManifestEntry.from_args(sequence_number=self.sequence, data_file=file)

    def _bounds(self) -> tuple[str | None, str | None]:
        return self.lower, self.upper

    def applies(self, path: str, sequence: int, spec_id: int, partition: tuple[Any, ...]) -> bool:
        """The rules of the format, word by word."""
        if self.referenced is not None:
            return self.referenced == path and sequence <= self.sequence
        same_partition = (spec_id, partition) == (self.spec_id, self.partition)
        if self.equality:
            everywhere = _SPEC_FIELDS[self.spec_id] == 0
            return (everywhere or same_partition) and sequence < self.sequence
        if self.lower is not None and self.lower == self.upper:
            return self.lower == path and sequence <= self.sequence
        inside = (self.lower is None or self.lower <= path) and (
            self.upper is None or path <= self.upper
        )
        return same_partition and inside and sequence <= self.sequence


_paths = st.sampled_from([f"data/{name}.parquet" for name in ("a", "b", "c", "ü", "z")])
_places = st.one_of(
    st.just((0, ())),
    st.tuples(st.sampled_from([1, 2]), st.tuples(st.sampled_from([None, 1, 2, "x", float("inf")]))),
)


@st.composite
def _deletes(draw: Any, equality: bool = False) -> list[_Delete]:
    found = []
    for number in range(draw(st.integers(0, 12))):
        spec_id, partition = draw(_places)
        kind = draw(st.sampled_from(["plain", "bounds", "one", "vector"]))
        first, second = sorted([draw(_paths), draw(_paths)])
        found.append(
            _Delete(
                f"deletes-{number}",
                draw(st.integers(0, 4)),
                spec_id,
                partition,
                equality=equality,
                lower=first if kind in ("bounds", "one") and not equality else None,
                upper=(second if kind == "bounds" else first)
                if kind in ("bounds", "one") and not equality
                else None,
                referenced=first if kind == "vector" and not equality else None,
            )
        )
    return found


def _index(deletes: list[_Delete], budget: MemoryBudget) -> DeleteIndex:
    index = DeleteIndex(budget)
    for delete in deletes:
        index.add(delete.entry(), _SPEC_FIELDS[delete.spec_id])
    index.seal()
    return index


def _data_file(path: str, spec_id: int, partition: tuple[Any, ...]) -> DataFile:
    file = DataFile.from_args(file_path=path, partition=Record(*partition))
    file.spec_id = spec_id
    return file


@pytest.mark.parametrize("limit", [64_000_000, 400], ids=["in memory", "on disk"])
@settings(max_examples=200, deadline=None)
@given(deletes=_deletes(), path=_paths, place=_places, sequence=st.integers(0, 5))
def test_deletes_apply_as_the_format_says(
    limit: int, deletes: list[_Delete], path: str, place: Any, sequence: int
) -> None:
    budget = MemoryBudget(limit)
    index = _index(deletes, budget)
    spec_id, partition = place
    file = _data_file(path, spec_id, partition)
    wanted = sorted(d.path for d in deletes if d.applies(path, sequence, spec_id, partition))
    if limit == 400 and wanted:
        index._most_bytes = 1 << 20  # of the index on disk, all may be taken
    found = index.of(file, sequence)
    assert [delete.path for delete in found] == wanted
    assert all((delete.records, delete.bytes) == (7, 1234) for delete in found)
    index.close()
    assert budget.held_bytes == 0


@settings(max_examples=200, deadline=None)
@given(deletes=_deletes(equality=True), path=_paths, place=_places, sequence=st.integers(0, 5))
def test_equality_deletes_are_refused_where_they_apply(
    deletes: list[_Delete], path: str, place: Any, sequence: int
) -> None:
    index = _index(deletes, MemoryBudget("1MB"))
    spec_id, partition = place
    file = _data_file(path, spec_id, partition)
    if any(d.applies(path, sequence, spec_id, partition) for d in deletes):
        with pytest.raises(UnsupportedFeatureError, match="equality deletes"):
            index.of(file, sequence)
    else:
        assert index.of(file, sequence) == ()
    index.close()


def test_a_large_index_moves_to_disk_and_stays_inside_its_share() -> None:
    budget = MemoryBudget("4MB")
    deletes = [
        _Delete(f"deletes-{n:06d}", 1, 0, (), lower=f"data-{n:06d}", upper=f"data-{n:06d}")
        for n in range(20_000)
    ]
    index = _index(deletes, budget)
    assert budget.peak_bytes <= 1_000_000
    for number in (0, 7, 12_345, 19_999):
        file = _data_file(f"data-{number:06d}", 0, ())
        assert [d.path for d in index.of(file, 1)] == [f"deletes-{number:06d}"]
        assert index.of(file, 2) == ()
    index.close()
    assert budget.held_bytes == 0


def test_a_file_with_more_deletes_than_fit_is_refused() -> None:
    index = _index(
        [_Delete(f"deletes-{n:06d}", 1, 0, ()) for n in range(5_000)], MemoryBudget("4MB")
    )
    with pytest.raises(MemoryBudgetError, match="compact the table") as caught:
        index.of(_data_file("data", 0, ()), 1)
    assert caught.value.limit_bytes == 4_000_000
    index.close()
