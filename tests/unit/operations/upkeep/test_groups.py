"""Groups of small files: what is rewritten together, and what is left alone."""

from __future__ import annotations

import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.typedef import Record

from icestream.operations.upkeep import groups
from icestream.operations.upkeep.groups import Group, Grouping

_TARGET = 100


def _task(size: int, *, part: int = 0, spec_id: int = 1, deletes: bool = False) -> FileScanTask:
    def file(content: DataFileContent) -> DataFile:
        described = DataFile.from_args(
            content=content,
            file_path=f"{part}/{size}",
            file_format=FileFormat.PARQUET,
            partition=Record(part),
            record_count=size,
            file_size_in_bytes=size,
        )
        described.spec_id = spec_id
        return described

    marks = {file(DataFileContent.POSITION_DELETES)} if deletes else set()
    return FileScanTask(file(DataFileContent.DATA), marks, residual=AlwaysTrue())


def _sizes(found: list[Group]) -> list[list[int]]:
    return [[task.file.file_size_in_bytes for task in group.tasks] for group in found]


def test_small_files_of_a_partition_are_grouped_and_large_ones_left_alone() -> None:
    grouping = Grouping(_TARGET, 2, 1)
    tasks = [_task(10), _task(75), _task(20), _task(30, part=1), _task(74)]
    (group,) = found = grouping.groups(tasks)
    assert _sizes(found) == [[10, 20, 74]]
    assert (group.bytes, group.rows, group.has_deletes) == (104, 104, False)


@pytest.mark.parametrize("deletes", [False, True])
def test_a_single_file_is_rewritten_only_for_its_deletes(deletes: bool) -> None:
    found = Grouping(_TARGET, 2, 1).groups([_task(500, deletes=deletes), _task(5, part=1)])
    assert _sizes(found) == ([[500]] if deletes else [])


def test_files_of_older_specs_are_grouped_across_partitions() -> None:
    tasks = [_task(5, part=part, spec_id=0) for part in range(3)]
    (group,) = Grouping(_TARGET, 3, 1).groups(tasks)
    assert len(group.files) == 3
    assert group.has_only(0)


def test_a_group_has_at_most_ten_target_files_and_so_many_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [len(g) for g in _sizes(Grouping(_TARGET, 2, 1).groups([_task(50)] * 50))] == [
        20,
        20,
        10,
    ]
    monkeypatch.setattr(groups, "_FILES_PER_GROUP", 8)
    assert [len(g) for g in _sizes(Grouping(_TARGET, 2, 1).groups([_task(1)] * 20))] == [8, 8, 4]


def test_every_chosen_file_is_charged() -> None:
    charged: list[int] = []
    Grouping(_TARGET, 2, 1, charge=charged.append).groups([_task(10), _task(99), _task(20)])
    assert len(charged) == 2
    assert min(charged) > 150
