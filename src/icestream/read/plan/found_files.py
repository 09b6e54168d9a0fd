"""Finds the files in data manifests that may contain rows of a scan.

`FileFilter` is plain data: workers in other processes can read manifests, too (`ManifestWorkers`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import INITIAL_SEQUENCE_NUMBER, DataFile, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan

from icestream.catalogs._pyiceberg.manifests import Metrics, metrics_evaluator
from icestream.read.plan.file_predicate import Match, PartitionTest
from icestream.read.plan.manifests import MetadataFiles

_KNOWN_PARTITIONS = 1_000


@dataclass(frozen=True, slots=True)
class FileFilter:
    """The filter of a scan, as far as it selects files: plain data.

    Attributes:
        schema: The schema that the filter refers to.
        specs: The partition specs of the table.
        row_filter: The filter.
        case_sensitive: Whether the column names of the filter are case-sensitive.
        with_empty: Whether to include files without rows.
    """

    schema: Schema
    specs: tuple[PartitionSpec, ...]
    row_filter: BooleanExpression
    case_sensitive: bool
    with_empty: bool

    @classmethod
    def of(cls, scan: DataScan) -> FileFilter:
        """The filter of a scan."""
        metadata = scan.table_metadata
        with_empty = str(scan.options.get("include_empty_files", "false")).lower() == "true"
        specs = tuple(metadata.specs().values())
        return cls(metadata.schema(), specs, scan.row_filter, scan.case_sensitive, with_empty)


class FileTest:
    """Applies a `FileFilter` to manifests and files."""

    def __init__(self, file_filter: FileFilter) -> None:
        self._filter = file_filter
        self._specs = {spec.spec_id: spec for spec in file_filter.specs}
        self._tests: dict[int, PartitionTest] = {}
        self._matches: dict[tuple[object, ...], Match] = {}
        self._metrics = _metrics_test(file_filter)

    def of_spec(self, spec_id: int) -> PartitionTest:
        """The test of partitions of a spec.

        Raises:
            KeyError: If the table does not have the spec.
        """
        if spec_id not in self._tests:
            self._tests[spec_id] = PartitionTest(
                self._filter.schema,
                self._specs[spec_id],
                self._filter.row_filter,
                case_sensitive=self._filter.case_sensitive,
            )
        return self._tests[spec_id]

    def by_partition(self, file: DataFile) -> Match:
        """Which rows of a file match, judged by its partition. Cached for each partition."""
        partition = file.partition
        key = (file.spec_id, *(partition[n] for n in range(len(partition))))
        known = self._matches.get(key)
        if known is None:
            if len(self._matches) == _KNOWN_PARTITIONS:
                self._matches.clear()
            known = self._matches[key] = self.of_spec(file.spec_id).partition(partition)
        return known

    def by_partition_and_metrics(self, file: DataFile) -> Match:
        """Which rows of a data file match, judged by its partition and its statistics."""
        match = self.by_partition(file)
        return match if match is not Match.NONE and self._metrics(file) else Match.NONE


class FoundFile(NamedTuple):
    """A data file that may contain rows of the scan.

    Attributes:
        file: Its entry in the manifest.
        sequence_number: Its data sequence number, which decides on the deletes that apply.
        all_rows_match: Whether every row matches the filter, judged by the file's partition.
    """

    file: DataFile
    sequence_number: int
    all_rows_match: bool


@dataclass(frozen=True, slots=True)
class Statistics:
    """The statistics of files that the caller of a plan needs. By default none.

    Attributes:
        columns: The field ids of columns whose statistics are needed.
        column_sizes: Whether the sizes of all columns are needed.
    """

    columns: frozenset[int] = frozenset()
    column_sizes: bool = False


NO_STATISTICS = Statistics()


class ManifestWorkers(Protocol):
    """Reads data manifests in other processes, if there are enough of them."""

    def find(
        self,
        manifests: Iterator[ManifestFile],
        files: MetadataFiles,
        file_filter: FileFilter,
        statistics: Statistics,
    ) -> Generator[FoundFile]:
        """Find files: the same ones as `find_files`, in the same order.

        Args:
            manifests: The manifests.
            files: Reads metadata files. What this process holds counts towards its budget.
            file_filter: Selects files.
            statistics: The statistics that the files must have. They may lack others.
        """
        ...


def find_files(
    manifests: Iterable[ManifestFile], files: MetadataFiles, test: FileTest, *, at_once: int = 1
) -> Generator[FoundFile]:
    """Find the files in data manifests that may contain matching rows, in the manifests' order.

    Args:
        manifests: The manifests.
        files: Reads metadata files.
        test: Selects files.
        at_once: Number of manifests to fetch at the start: see `MetadataFiles.entries_of`.
    """
    with closing(files.entries_of(manifests, at_once=at_once)) as entries:
        for entry in entries:
            match = test.by_partition_and_metrics(entry.data_file)
            if match is not Match.NONE:
                sequence_number = entry.sequence_number or INITIAL_SEQUENCE_NUMBER
                yield FoundFile(entry.data_file, sequence_number, match is Match.ALL)


def _metrics_test(wanted: FileFilter) -> Callable[[DataFile], bool]:
    if isinstance(wanted.row_filter, AlwaysTrue):
        return lambda file: wanted.with_empty or file.record_count != 0
    might_match = metrics_evaluator(
        wanted.schema,
        wanted.row_filter,
        wanted.case_sensitive,
        include_empty_files=wanted.with_empty,
    )
    return lambda file: might_match(cast(Metrics, file))
