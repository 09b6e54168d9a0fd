"""Planners: find the data files of a scan one by one, with the deletes that apply.

`ManifestPlanner` reads the snapshot's manifests. It reads all delete manifests into an index first,
and then data manifests one by one as files are consumed. `TaskPlanner` uses the tasks of PyIceberg,
which supports planning by a REST catalog. `AppendPlanner` reads only files that some snapshots
added.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Protocol

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestFile,
)
from pyiceberg.table import DataScan, FileScanTask
from pyiceberg.table.snapshots import Snapshot

from icestream.catalogs._pyiceberg.manifests import exact_manifests
from icestream.errors import (
    CatalogError,
    CorruptFileError,
    FileMissingError,
    IcestreamError,
    UnsupportedFeatureError,
)
from icestream.memory.budget import MemoryBudget
from icestream.read.decode.files import RetryPolicy
from icestream.read.deletes.delete_index import DeleteIndex, check_format, equality_error
from icestream.read.plan.file_predicate import (
    Match,
    PartitionTest,
    all_rows_match,
    file_test,
    has_uuid_partition,
)
from icestream.read.plan.found_files import (
    NO_STATISTICS,
    FileFilter,
    FileTest,
    FoundFile,
    ManifestWorkers,
    Statistics,
    find_files,
)
from icestream.read.plan.manifests import Content, MetadataFiles, added_entries, metadata_files
from icestream.read.request import ScanRequest
from icestream.read.split import DeleteFile


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A data file that may contain rows of the scan.

    Attributes:
        file: Its entry in the manifest.
        deletes: The delete files that apply to it, by path.
        all_rows_match: Whether every row matches the filter, judged by the file's partition.
    """

    file: DataFile
    deletes: tuple[DeleteFile, ...]
    all_rows_match: bool


class Planner(Protocol):
    """Finds the data files of a scan, in a fixed order. Can be iterated over once."""

    def __iter__(self) -> Iterator[PlannedFile]: ...

    def close(self) -> None:
        """Release all bytes, and end the iteration."""


def open_planner(
    request: ScanRequest,
    *,
    budget: MemoryBudget,
    policy: RetryPolicy,
    stopped: threading.Event,
    workers: ManifestWorkers | None = None,
    statistics: Statistics = NO_STATISTICS,
) -> Planner:
    """Start to plan a scan. This reads the manifests of delete files.

    Args:
        request: The scan.
        budget: The budget for the bytes that planning holds.
        policy: The policy for retries.
        stopped: Ends retries when it is set.
        workers: Read data manifests; by default this process does.
        statistics: The statistics that planned files must have. With workers they lack others.

    Raises:
        FileMissingError: If a metadata file does not exist.
        CorruptFileError: If a metadata file can't be decoded.
        CatalogError: If the catalog plans the scan and fails.
    """
    scan = request.data_scan
    if request.appends is not None:
        return AppendPlanner(request, request.appends, budget)
    if type(scan).plan_files is not DataScan.plan_files or _is_planned_by_the_catalog(scan):
        return TaskPlanner(request)
    files = MetadataFiles(scan.io, request.context.table, budget, policy, stopped)
    return ManifestPlanner(request, files, workers, statistics)


class ManifestPlanner:
    """Plans from manifests, in the order of the manifest list and of each manifest's entries.

    Memory: the manifest list, the index of delete files (which spills), and a chunk of the manifest
        that is being read. On an object store, also up to 8 MB of manifests fetched ahead. With
        workers, what these return instead.
    """

    def __init__(
        self,
        request: ScanRequest,
        files: MetadataFiles,
        workers: ManifestWorkers | None = None,
        statistics: Statistics = NO_STATISTICS,
    ) -> None:
        scan = request.data_scan
        self._files = files
        self._workers = workers
        self._statistics = statistics
        self._specs = scan.table_metadata.specs()
        self._filter = FileFilter.of(scan)
        self._test = FileTest(self._filter)
        self._deletes = DeleteIndex(files.budget)
        self._list: Content | None = None
        self._found: Generator[FoundFile] | None = None
        snapshot = scan.snapshot()
        try:
            if snapshot is not None:
                self._list = files.manifest_list(snapshot)
                self._index_deletes()
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[PlannedFile]:
        if self._list is None:
            return
        manifests = self._manifests(ManifestContent.DATA)
        if self._workers is None:
            self._found = find_files(manifests, self._files, self._test)
        else:
            self._found = self._workers.find(manifests, self._files, self._filter, self._statistics)
        for file, sequence_number, all_match in self._found:
            yield PlannedFile(file, self._deletes.of(file, sequence_number), all_match)

    def close(self) -> None:
        """Release all bytes, and end the iteration."""
        if self._found is not None:
            self._found.close()
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
        with closing(self._files.entries_of(manifests, at_once=8)) as entries:
            for entry in entries:
                if self._test.by_partition(entry.data_file) is not Match.NONE:
                    spec = self._specs.get(entry.data_file.spec_id)
                    self._deletes.add(entry, len(spec.fields) if spec is not None else 0)
        self._deletes.seal()

    def _manifests(self, content: ManifestContent) -> Iterator[ManifestFile]:
        """The manifests of a kind that may contain files with matching rows."""
        assert self._list is not None
        for manifest in self._files.manifests(self._list):
            if (
                manifest.content == content
                and (manifest.has_added_files() or manifest.has_existing_files())
                and self._of_spec(manifest.partition_spec_id).manifest(manifest)
            ):
                yield manifest

    def _of_spec(self, spec_id: int) -> PartitionTest:
        try:
            return self._test.of_spec(spec_id)
        except KeyError as error:
            assert self._list is not None
            raise CorruptFileError(
                f"{self._list.path}, a metadata file of {self._files.table}, names partition "
                f"spec {spec_id}, which the table does not have. Restore the file, or roll the "
                "table back to a snapshot that does not need it",
                path=self._list.path,
            ) from error


class AppendPlanner:
    """Plans the files that some snapshots added, snapshot by snapshot. No deletes apply to them.

    Memory: a manifest list, and a chunk of the manifest that is being read.
    """

    def __init__(
        self, request: ScanRequest, snapshots: Iterable[Snapshot], budget: MemoryBudget
    ) -> None:
        self._found = self._files(request, snapshots, budget)

    def __iter__(self) -> Iterator[PlannedFile]:
        return self._found

    def close(self) -> None:
        """Release all bytes, and end the iteration."""
        self._found.close()

    def _files(
        self, request: ScanRequest, snapshots: Iterable[Snapshot], budget: MemoryBudget
    ) -> Generator[PlannedFile]:
        io, table = request.data_scan.io, request.context.table
        test = FileTest(FileFilter.of(request.data_scan))
        for snapshot in snapshots:
            with closing(added_entries(io, snapshot, table=table, budget=budget)) as entries:
                for entry in entries:
                    match = test.by_partition_and_metrics(entry.data_file)
                    if match is not Match.NONE:
                        yield PlannedFile(entry.data_file, (), match is Match.ALL)


class TaskPlanner:
    """Uses the tasks that PyIceberg plans for a scan, in their order.

    Memory: all tasks, which PyIceberg holds in a list. They do not count towards the budget.
    """

    def __init__(self, request: ScanRequest) -> None:
        self._request = request
        self._tasks = _tasks_of_pyiceberg(request)

    def __iter__(self) -> Iterator[PlannedFile]:
        return planned_tasks(self._request, self._tasks)

    def close(self) -> None:
        """Drop the tasks."""
        self._tasks = []


def planned_tasks(request: ScanRequest, tasks: Iterable[FileScanTask]) -> Iterator[PlannedFile]:
    """PyIceberg's tasks as planned files."""
    for task in tasks:
        if not isinstance(task.residual, AlwaysFalse):
            files = sorted(task.delete_files, key=lambda file: file.file_path)
            deletes = tuple(_delete_file(file) for file in files)
            yield PlannedFile(task.file, deletes, all_rows_match(request, task))


def _is_planned_by_the_catalog(scan: DataScan) -> bool:
    return scan.catalog is not None and scan.catalog.supports_server_side_planning()


def _tasks_of_pyiceberg(request: ScanRequest) -> list[FileScanTask]:
    scan, table = request.data_scan, request.context.table
    snapshot = scan.snapshot()
    try:
        if snapshot is not None and not _is_planned_by_the_catalog(scan):
            metadata_files(scan.io, table=table).manifest_list(snapshot).close()
        with exact_manifests():
            return _filtered_tasks(scan)
    except (ValueError, NotImplementedError) as error:
        _refuse_equality_deletes(request, error)
        raise CatalogError(f"planning a scan of {table} failed: {error}") from error
    except FileNotFoundError as error:
        raise FileMissingError(
            f"a metadata file of {table} does not exist: {error}. Snapshot expiry or clean-up may "
            "have removed it since the table was loaded. Load the table again",
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
            pass  # With `or`, PyIceberg 0.12 compares null partition values with `<`.
    # Plan without the filter, and apply the filter to the files here.
    might_match = file_test(metadata, scan.row_filter, case_sensitive=scan.case_sensitive)
    return [
        FileScanTask(task.file, task.delete_files, residual=scan.row_filter)
        for task in scan.update(row_filter=AlwaysTrue()).plan_files()
        if might_match(task.file)
    ]


def _refuse_equality_deletes(request: ScanRequest, error: Exception) -> None:
    if "equality delete" not in str(error):
        return
    paths: list[str] = []
    with suppress(IcestreamError):
        paths = _equality_deletes(request)
    raise equality_error(paths or [str(error)]) from error


def _equality_deletes(request: ScanRequest) -> list[str]:
    snapshot = request.data_scan.snapshot()
    files = metadata_files(request.data_scan.io, table=request.context.table)
    return [
        entry.data_file.file_path
        for manifest in (files.manifests_of(snapshot) if snapshot else [])
        if manifest.content == ManifestContent.DELETES
        for entry in files.entries(manifest)
        if entry.data_file.content == DataFileContent.EQUALITY_DELETES
    ]


def _delete_file(file: DataFile) -> DeleteFile:
    if file.content == DataFileContent.EQUALITY_DELETES:
        raise UnsupportedFeatureError(
            f"{file.file_path} is an equality delete file, which icestream does not read"
        )
    delete = DeleteFile(
        path=file.file_path,
        format=file.file_format.value.lower(),
        bytes=file.file_size_in_bytes,
        records=file.record_count or 0,
        offset=getattr(file, "content_offset", None),
        length=getattr(file, "content_size_in_bytes", None),
    )
    check_format(delete)
    return delete
