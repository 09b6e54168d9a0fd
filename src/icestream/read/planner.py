"""Planners: where the data files of a scan come from, one by one, with the deletes that apply.

`ManifestPlanner` reads the snapshot's manifests: delete manifests first, into an index, then data
manifests one by one as files are asked for. `TaskPlanner` takes what PyIceberg gives, which is how
a REST catalog plans a scan on its own side. Both are on the scan's account, and `close` ends them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol, cast

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue
from pyiceberg.manifest import (
    INITIAL_SEQUENCE_NUMBER,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from pyiceberg.table import DataScan, FileScanTask
from pyiceberg.typedef import Record

from icestream._pyiceberg import Metrics, equality_delete_paths, exact_manifests, metrics_evaluator
from icestream.errors import (
    CatalogError,
    FileMissingError,
    IcestreamError,
    UnsupportedFeatureError,
)
from icestream.memory import MemoryBudget
from icestream.read.delete_index import DeleteIndex
from icestream.read.file_test import (
    Match,
    PartitionTest,
    all_rows_match,
    file_test,
    has_uuid_partition,
)
from icestream.read.files import RetryPolicy
from icestream.read.manifests import Content, MetadataFiles
from icestream.read.request import ScanRequest
from icestream.read.split import DeleteFile

_KNOWN_PARTITIONS = 1_000


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A data file that might hold rows of the scan.

    Attributes:
        file: Its entry in the manifest.
        deletes: The delete files that apply to it, by path.
        all_rows_match: Whether the filter lets every row pass, by the file's partition.
    """

    file: DataFile
    deletes: tuple[DeleteFile, ...]
    all_rows_match: bool


class Planner(Protocol):
    """Finds the data files of a scan, in a fixed order. It is iterated over once."""

    def __iter__(self) -> Iterator[PlannedFile]: ...

    def close(self) -> None:
        """Give back all that is held; ends the iteration."""


def open_planner(
    asked: ScanRequest,
    *,
    budget: MemoryBudget,
    policy: RetryPolicy | None = None,
    stopped: threading.Event | None = None,
) -> Planner:
    """Start to plan a scan; what is read of manifests now are those of delete files.

    Args:
        asked: The scan.
        budget: Where what planning holds is charged.
        policy: Retries.
        stopped: Ends retries when it is set.

    Raises:
        FileMissingError: If a metadata file is gone.
        CorruptFileError: If it can't be decoded.
        CatalogError: If the catalog plans the scan, and fails.
    """
    scan = asked.data_scan
    if type(scan).plan_files is not DataScan.plan_files or _is_planned_by_the_catalog(scan):
        return TaskPlanner(asked)
    files = MetadataFiles(
        scan.io,
        asked.context.table,
        budget,
        policy if policy is not None else RetryPolicy(),
        stopped if stopped is not None else threading.Event(),
    )
    return ManifestPlanner(asked, files)


class ManifestPlanner:
    """Plans from manifests, in the order of the manifest list and of each manifest's entries.

    Args:
        asked: The scan.
        files: How manifests are read.

    Memory: the manifest list, the index of delete files (which spills), and a chunk of the manifest
        that is being read; on an object store up to 8 MB of others, fetched ahead.
    """

    def __init__(self, asked: ScanRequest, files: MetadataFiles) -> None:
        scan = asked.data_scan
        self._files = files
        self._metadata = scan.table_metadata
        self._row_filter = scan.row_filter
        self._case_sensitive = scan.case_sensitive
        self._tests: dict[int, PartitionTest] = {}
        self._matches: dict[tuple[object, ...], Match] = {}
        self._metrics = self._metrics_test(scan)
        self._deletes = DeleteIndex(files.budget)
        self._list: Content | None = None
        self._entries: Generator[ManifestEntry] | None = None
        snapshot = scan.snapshot()
        try:
            if snapshot is not None:
                self._list = files.fetch(snapshot.manifest_list)
                self._index_deletes()
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[PlannedFile]:
        if self._list is None:
            return
        self._entries = self._files.entries_of(self._manifests(ManifestContent.DATA), at_once=1)
        for entry in self._entries:
            file = entry.data_file
            match = self._match(file)
            if match is Match.NONE or not self._metrics(file):
                continue
            sequence_number = entry.sequence_number or INITIAL_SEQUENCE_NUMBER
            yield PlannedFile(file, self._deletes.of(file, sequence_number), match is Match.ALL)

    def close(self) -> None:
        """Give back all that is held; ends the iteration."""
        if self._entries is not None:
            self._entries.close()
        self._deletes.close()
        if self._list is not None:
            self._list.close()
            self._list = None

    def _index_deletes(self) -> None:
        oldest = min(
            (m.min_sequence_number or 0 for m in self._manifests(ManifestContent.DATA)),
            default=None,
        )
        if oldest is None:
            return
        manifests = (
            manifest
            for manifest in self._manifests(ManifestContent.DELETES)
            if (manifest.sequence_number or 0) >= oldest
        )
        specs = self._metadata.specs()
        with closing(self._files.entries_of(manifests, at_once=8)) as entries:
            for entry in entries:
                if self._match(entry.data_file) is not Match.NONE:
                    spec = specs.get(entry.data_file.spec_id)
                    self._deletes.add(entry, len(spec.fields) if spec is not None else 0)
        self._deletes.seal()

    def _manifests(self, content: ManifestContent) -> Iterator[ManifestFile]:
        """The manifests of a kind that might name files with matching rows."""
        assert self._list is not None
        for manifest in self._files.manifests(self._list):
            if (
                manifest.content == content
                and (manifest.has_added_files() or manifest.has_existing_files())
                and self._test(manifest.partition_spec_id).manifest(manifest)
            ):
                yield manifest

    def _test(self, spec_id: int) -> PartitionTest:
        if spec_id not in self._tests:
            self._tests[spec_id] = PartitionTest(
                self._metadata.schema(),
                self._metadata.specs()[spec_id],
                self._row_filter,
                case_sensitive=self._case_sensitive,
            )
        return self._tests[spec_id]

    def _match(self, file: DataFile) -> Match:
        """What the partition says, asked once for the files of a partition."""
        partition: Record = file.partition
        key = (file.spec_id, *(partition[n] for n in range(len(partition))))
        known = self._matches.get(key)
        if known is None:
            if len(self._matches) == _KNOWN_PARTITIONS:
                self._matches.clear()
            known = self._matches[key] = self._test(file.spec_id).partition(partition)
        return known

    def _metrics_test(self, scan: DataScan) -> Callable[[DataFile], bool]:
        with_empty = str(scan.options.get("include_empty_files", "false")).lower() == "true"
        if isinstance(self._row_filter, AlwaysTrue):
            return lambda file: with_empty or file.record_count != 0
        might_match = metrics_evaluator(
            self._metadata.schema(),
            self._row_filter,
            self._case_sensitive,
            include_empty_files=with_empty,
        )
        return lambda file: might_match(cast(Metrics, file))


class TaskPlanner:
    """Takes the tasks that PyIceberg gives for a scan, in their order.

    Args:
        asked: The scan.

    Memory: all tasks, which PyIceberg holds in a list; not on the account.
    """

    def __init__(self, asked: ScanRequest) -> None:
        self._asked = asked
        self._tasks = _tasks_of_pyiceberg(asked)

    def __iter__(self) -> Iterator[PlannedFile]:
        for task in self._tasks:
            if not isinstance(task.residual, AlwaysFalse):
                yield planned_task(self._asked, task)

    def close(self) -> None:
        """Drop the tasks."""
        self._tasks = []


def planned_task(asked: ScanRequest, task: FileScanTask) -> PlannedFile:
    """A task of PyIceberg's."""
    deletes = sorted(task.delete_files, key=lambda file: file.file_path)
    return PlannedFile(
        task.file, tuple(_delete_file(file) for file in deletes), all_rows_match(asked, task)
    )


def _is_planned_by_the_catalog(scan: DataScan) -> bool:
    return scan.catalog is not None and scan.catalog.supports_server_side_planning()


def _tasks_of_pyiceberg(asked: ScanRequest) -> list[FileScanTask]:
    scan, table = asked.data_scan, asked.context.table
    try:
        with exact_manifests():
            return _filtered_tasks(scan)
    except (ValueError, NotImplementedError) as error:
        _refuse_equality_deletes(scan, error)
        raise CatalogError(f"planning a scan of {table} failed: {error}") from error
    except FileNotFoundError as error:
        raise FileMissingError(
            f"a metadata file of {table} is gone: {error}. Was it removed by an expiry or clean-up "
            "while this table object was kept? Load the table again",
            path=str(error.filename or error),
        ) from error
    except IcestreamError:
        raise
    except Exception as error:
        raise CatalogError(
            f"planning a scan of {table} failed: {type(error).__name__}: {error}"
        ) from error


def _filtered_tasks(scan: DataScan) -> list[FileScanTask]:
    metadata = scan.table_metadata
    if not any(has_uuid_partition(spec, metadata.schema()) for spec in metadata.specs().values()):
        try:
            return list(scan.plan_files())
        except TypeError:
            pass  # PyIceberg 0.12 compares a null partition value with `<` where there is an `or`
    # Plan without the filter, and leave out here what it rules out.
    might_match = file_test(metadata, scan.row_filter, case_sensitive=scan.case_sensitive)
    return [
        FileScanTask(task.file, task.delete_files, residual=scan.row_filter)
        for task in scan.update(row_filter=AlwaysTrue()).plan_files()
        if might_match(task.file)
    ]


def _refuse_equality_deletes(scan: DataScan, error: Exception) -> None:
    if "equality delete" not in str(error):
        return
    snapshot = scan.snapshot()
    paths = equality_delete_paths(snapshot, scan.io) if snapshot else []
    named = paths[0] if paths else str(error)
    more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
    raise UnsupportedFeatureError(
        f"the table has equality deletes, which icestream does not read: {named}{more}. "
        "Rewrite its data files with the engine that wrote them, then scan again"
    ) from error


def _delete_file(file: DataFile) -> DeleteFile:
    if file.content == DataFileContent.EQUALITY_DELETES:
        raise UnsupportedFeatureError(
            f"{file.file_path} is an equality delete file, which icestream does not read"
        )
    if file.file_format not in (FileFormat.PARQUET, FileFormat.ORC, FileFormat.PUFFIN):
        raise UnsupportedFeatureError(
            f"{file.file_path} is an {file.file_format.value} delete file, which icestream does "
            "not read: rewrite the deletes as Parquet"
        )
    return DeleteFile(
        path=file.file_path,
        format=file.file_format.value.lower(),
        bytes=file.file_size_in_bytes,
        records=file.record_count or 0,
        offset=getattr(file, "content_offset", None),
        length=getattr(file, "content_size_in_bytes", None),
    )
