"""Which files, which deletes: PyIceberg plans, we keep it as splits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue
from pyiceberg.expressions.visitors import (
    bind,
    extract_field_ids,
    residual_evaluator_of,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import build_position_accessors
from pyiceberg.table import DataScan, FileScanTask
from pyiceberg.transforms import IdentityTransform

from icestream._pyiceberg import equality_delete_paths, exact_manifests
from icestream.errors import (
    CatalogError,
    FileMissingError,
    IcestreamError,
    UnsupportedFeatureError,
)
from icestream.read.file_test import file_test, has_uuid_partition
from icestream.read.origin import PartitionUnion
from icestream.read.request import ScanRequest
from icestream.read.split import DeleteFile, Split


def plan(asked: ScanRequest) -> list[Split]:
    """Read the manifests: one split per data file, in PyIceberg's order.

    Raises:
        UnsupportedFeatureError: If equality deletes or a format we do not read are in the way.
    """
    if asked.data_scan.row_filter == AlwaysFalse() or asked.limit == 0:
        return []
    return splits_of_tasks(asked, plan_tasks(asked))


def plan_tasks(asked: ScanRequest) -> list[FileScanTask]:
    """Read the manifests: the data files that might hold rows, with the deletes that apply.

    Raises:
        UnsupportedFeatureError: If the table has equality deletes.
    """
    scan = asked.data_scan
    try:
        with exact_manifests():
            return _tasks(scan)
    except (ValueError, NotImplementedError) as error:
        _refuse_equality_deletes(scan, error)
        raise CatalogError(f"planning a scan of {asked.context.table} failed: {error}") from error
    except FileNotFoundError as error:
        raise FileMissingError(
            f"a metadata file of {asked.context.table} is gone: {error}. Was it removed by an "
            "expiry or clean-up while this table object was kept? Load the table again",
            path=str(error.filename or error),
        ) from error
    except IcestreamError:
        raise
    except Exception as error:
        raise CatalogError(
            f"planning a scan of {asked.context.table} failed: {type(error).__name__}: {error}"
        ) from error


def splits_of_tasks(asked: ScanRequest, tasks: Iterable[FileScanTask]) -> list[Split]:
    """Whole-file splits from PyIceberg's tasks."""
    splits: list[Split] = []
    rows_left = asked.limit
    partitions = None
    if "_partition" in asked.context.metadata_columns:
        partitions = PartitionUnion(asked.data_scan.table_metadata)
    for task in tasks:
        if task.residual == AlwaysFalse():
            continue
        split = _split_of_task(asked, task, partitions)
        splits.append(split)
        if rows_left is not None and not split.filtered and not split.deletes:
            rows_left -= split.rows
            if rows_left <= 0:
                break  # the rows that the limit asks for are in the files so far
    return splits


def _tasks(scan: DataScan) -> list[FileScanTask]:
    metadata = scan.table_metadata
    if not any(has_uuid_partition(spec, metadata.schema()) for spec in metadata.specs().values()):
        try:
            return list(scan.plan_files())
        except TypeError:
            pass  # PyIceberg 0.12 compares a null partition value with `<` where there is an `or`
    # Plan without the filter, and leave out here what it rules out.
    might_match = file_test(metadata, scan.row_filter, case_sensitive=scan.case_sensitive)
    unfiltered = scan.update(row_filter=AlwaysTrue())
    residual = scan.row_filter
    return [
        FileScanTask(task.file, task.delete_files, residual=residual)
        for task in unfiltered.plan_files()
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


def _split_of_task(
    asked: ScanRequest, task: FileScanTask, partitions: PartitionUnion | None
) -> Split:
    file = task.file
    if file.file_format not in (FileFormat.PARQUET, FileFormat.ORC):
        raise UnsupportedFeatureError(
            f"{file.file_path} is an {file.file_format.value} data file: icestream reads Parquet "
            "and ORC. Rewrite the file as Parquet with the engine that wrote it"
        )
    return Split(
        path=file.file_path,
        rows=file.record_count or 0,  # Other planners may leave it out.
        bytes=file.file_size_in_bytes,
        format=file.file_format.value.lower(),
        row_groups=None,
        filtered=not all_rows_match(asked, task),
        deletes=tuple(
            _delete_file(d) for d in sorted(task.delete_files, key=lambda d: d.file_path)
        ),
        constants=_constants(asked, file),
        context=asked.context,
        spec_id=file.spec_id or 0,
        partition=() if partitions is None else partitions.values(file),
    )


def all_rows_match(asked: ScanRequest, task: FileScanTask) -> bool:
    """Whether the partition says that the filter lets every row pass.

    The task's own residual alone does not say so: one made by hand or by a REST catalog may lack
    it, and PyIceberg lets null partition values pass comparisons that drop null rows.
    """
    row_filter, file = asked.context.row_filter, task.file
    if isinstance(row_filter, AlwaysTrue):
        return True
    metadata = asked.data_scan.table_metadata
    spec = metadata.specs().get(file.spec_id or 0)
    if spec is None or not isinstance(task.residual, AlwaysTrue):
        return False
    schema, case_sensitive = metadata.schema(), asked.context.case_sensitive
    asked_of = extract_field_ids(bind(schema, row_filter, case_sensitive))
    values = [file.partition[n] for n, f in enumerate(spec.fields) if f.source_id in asked_of]
    if any(value is None or value != value for value in values):
        return False
    left = residual_evaluator_of(spec, row_filter, case_sensitive, schema)
    return isinstance(left.residual_for(file.partition), AlwaysTrue)


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


def _constants(asked: ScanRequest, file: DataFile) -> tuple[tuple[int, Any], ...]:
    metadata = asked.data_scan.table_metadata
    spec = metadata.specs().get(file.spec_id or 0)
    if spec is None or spec.is_unpartitioned():
        return ()
    wanted = asked.context.read_schema.field_ids
    identity = [
        f
        for f in spec.fields
        if isinstance(f.transform, IdentityTransform) and f.source_id in wanted
    ]
    if not identity:
        return ()
    accessors = build_position_accessors(spec.partition_type(metadata.schema()))
    return tuple((f.source_id, accessors[f.field_id].get(file.partition)) for f in identity)
