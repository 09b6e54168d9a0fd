"""Which files, which deletes, which columns: PyIceberg plans, we keep it as splits."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, cast

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import (
    bind,
    expression_evaluator,
    extract_field_ids,
    inclusive_projection,
    residual_evaluator_of,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema, build_position_accessors, prune_columns
from pyiceberg.table import DataScan, FileScanTask, Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, ListType, MapType, StructType
from pyiceberg.utils.config import Config

from icestream._pyiceberg import Metrics, equality_delete_paths, metrics_evaluator
from icestream.errors import (
    CatalogError,
    FileMissingError,
    IcestreamError,
    InvalidArgumentError,
    UnknownColumnError,
    UnsupportedFeatureError,
)
from icestream.read.rows import fit_literals
from icestream.read.split import DeleteFile, ReadContext, Split

Source = Table | DataScan


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What the caller asked for, resolved against the table's metadata; nothing is read yet."""

    data_scan: DataScan
    context: ReadContext
    limit: int | None


def request(
    source: Source,
    *,
    where: str | BooleanExpression | None = None,
    columns: Sequence[str] | None = None,
    snapshot_id: int | None = None,
    branch: str | None = None,
    tag: str | None = None,
    as_of: datetime | int | None = None,
    limit: int | None = None,
    case_sensitive: bool = True,
) -> ScanRequest:
    """Check every argument against the metadata and settle snapshot, schema and filter.

    Raises:
        InvalidArgumentError: If something does not exist or does not fit.
    """
    data_scan = _data_scan(source, case_sensitive)
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise InvalidArgumentError(f"limit is {limit!r}: give a whole number of rows, 0 or more")
    data_scan = _with_snapshot(data_scan, snapshot_id, branch, tag, as_of)
    schema = _schema_of(data_scan, branch)
    # PyIceberg binds the filter to the table's current schema, also when an older snapshot is read
    # whose columns had other names: let it see the schema that is read.
    metadata = data_scan.table_metadata.model_copy(update={"current_schema_id": schema.schema_id})
    row_filter = _row_filter(data_scan, where, schema)
    selected = _select(schema, columns, data_scan)
    limits = [n for n in (limit, data_scan.limit) if n is not None]
    data_scan = data_scan.update(table_metadata=metadata, row_filter=row_filter)
    snapshot = data_scan.snapshot()
    downcast = Config().get_bool("downcast-ns-timestamp-to-us-on-write")
    context = ReadContext(
        table=".".join(data_scan.table_identifier or ()) or metadata.location,
        snapshot_id=snapshot.snapshot_id if snapshot else None,
        io=data_scan.io,
        schema=selected,
        read_schema=_read_schema(schema, selected, row_filter, data_scan.case_sensitive),
        row_filter=row_filter,
        case_sensitive=data_scan.case_sensitive,
        name_mapping=metadata.name_mapping(),
        downcast_ns=downcast if downcast is not None else metadata.format_version <= 2,
    )
    return ScanRequest(data_scan, context, min(limits) if limits else None)


def plan(asked: ScanRequest) -> list[Split]:
    """Read the manifests: one split per data file, in PyIceberg's order.

    Raises:
        UnsupportedFeatureError: If equality deletes or a format we do not read are in the way.
    """
    scan = asked.data_scan
    if scan.row_filter == AlwaysFalse() or asked.limit == 0:
        return []
    try:
        tasks = _tasks(scan)
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
    return splits_of_tasks(asked, tasks)


def splits_of_tasks(asked: ScanRequest, tasks: Iterable[FileScanTask]) -> list[Split]:
    """Whole-file splits from PyIceberg's tasks."""
    splits: list[Split] = []
    rows_left = asked.limit
    for task in tasks:
        if task.residual == AlwaysFalse():
            continue
        split = _split_of_task(asked, task)
        splits.append(split)
        if rows_left is not None and not split.filtered and not split.deletes:
            rows_left -= split.rows
            if rows_left <= 0:
                break  # the rows that the limit asks for are in the files so far
    return splits


def _tasks(scan: DataScan) -> list[FileScanTask]:
    try:
        return list(scan.plan_files())
    except TypeError:
        # PyIceberg 0.12 compares a null partition value with `<` where the filter has an `or`: plan
        # without the filter, and leave out here what it rules out.
        might_match = _file_test(scan)
        unfiltered = scan.update(row_filter=AlwaysTrue())
        return [task for task in unfiltered.plan_files() if might_match(task.file)]


def _file_test(scan: DataScan) -> Callable[[DataFile], bool]:
    schema, specs = scan.table_metadata.schema(), scan.table_metadata.specs()
    by_metrics = metrics_evaluator(schema, scan.row_filter, scan.case_sensitive)
    by_partition = {
        spec_id: expression_evaluator(
            Schema(*spec.partition_type(schema).fields),
            inclusive_projection(schema, spec, scan.case_sensitive)(scan.row_filter),
            scan.case_sensitive,
        )
        for spec_id, spec in specs.items()
    }
    return lambda file: (
        by_partition[file.spec_id](file.partition) and by_metrics(cast(Metrics, file))
    )


def _data_scan(source: Source, case_sensitive: bool) -> DataScan:
    if isinstance(source, DataScan):
        return source if case_sensitive else source.with_case_sensitive(False)
    if isinstance(source, Table):
        return source.scan(case_sensitive=case_sensitive)
    raise InvalidArgumentError(
        f"scan() takes a PyIceberg Table or DataScan, not {type(source).__name__}: "
        "load one with catalog.load_table('db.table')"
    )


def _with_snapshot(
    scan: DataScan,
    snapshot_id: int | None,
    branch: str | None,
    tag: str | None,
    as_of: datetime | int | None,
) -> DataScan:
    given = {"snapshot_id": snapshot_id, "branch": branch, "tag": tag, "as_of": as_of}
    named = [name for name, value in given.items() if value is not None]
    if not named:
        if scan.snapshot_id is not None:
            _check_snapshot(scan, scan.snapshot_id)
        return scan
    if len(named) > 1:
        raise InvalidArgumentError(f"give one of {', '.join(named)}, not {len(named)} of them")
    if scan.snapshot_id is not None:
        raise InvalidArgumentError(
            f"the DataScan already reads snapshot {scan.snapshot_id}: leave {named[0]} out"
        )
    if snapshot_id is not None:
        _check_snapshot(scan, snapshot_id)
        return scan.update(snapshot_id=snapshot_id)
    if as_of is not None:
        then = _snapshot_as_of(scan, as_of)
        _check_snapshot(scan, then)
        return scan.update(snapshot_id=then)
    kind = SnapshotRefType.BRANCH if branch is not None else SnapshotRefType.TAG
    name = branch if branch is not None else tag
    refs = {n: r for n, r in scan.table_metadata.refs.items() if r.snapshot_ref_type == kind}
    if name not in refs:
        known = ", ".join(sorted(refs)) or "none"
        raise InvalidArgumentError(f"the table has no {kind.value} {name!r}: it has {known}")
    return scan.update(snapshot_id=refs[name].snapshot_id)


def _check_snapshot(scan: DataScan, snapshot_id: int) -> None:
    if scan.table_metadata.snapshot_by_id(snapshot_id) is None:
        raise InvalidArgumentError(
            f"the table has no snapshot {snapshot_id}: it may have expired; table.history() lists "
            "those it has"
        )


def _snapshot_as_of(scan: DataScan, as_of: datetime | int) -> int:
    if isinstance(as_of, datetime):
        moment = as_of if as_of.tzinfo else as_of.replace(tzinfo=UTC)
        millis = int(moment.timestamp() * 1000)
    elif isinstance(as_of, int) and not isinstance(as_of, bool):
        millis = as_of
    else:
        raise InvalidArgumentError(
            f"as_of is {as_of!r}: give a datetime, or milliseconds since 1970 as a whole number"
        )
    past = [e for e in scan.table_metadata.snapshot_log if e.timestamp_ms <= millis]
    if not past:
        raise InvalidArgumentError(f"the table has no snapshot as old as {as_of}")
    return past[-1].snapshot_id  # of commits in one millisecond, the last


def _schema_of(scan: DataScan, branch: str | None) -> Schema:
    """A branch is read with the table's current schema; a tag or a snapshot with its own."""
    metadata = scan.table_metadata
    if scan.snapshot_id is None or branch is not None:
        return metadata.schema()
    snapshot = metadata.snapshot_by_id(scan.snapshot_id)
    wanted = snapshot.schema_id if snapshot else None
    return next((s for s in metadata.schemas if s.schema_id == wanted), metadata.schema())


def _row_filter(
    scan: DataScan, where: str | BooleanExpression | None, schema: Schema
) -> BooleanExpression:
    row_filter: BooleanExpression = scan.row_filter
    if where is not None:
        if isinstance(where, str):
            try:
                where = parse(where)
            except Exception as error:
                raise InvalidArgumentError(
                    f"the filter {where!r} can't be parsed: {error}"
                ) from error
        if not isinstance(where, BooleanExpression):
            raise InvalidArgumentError(
                f"where is a {type(where).__name__}: give a string or a PyIceberg expression"
            )
        row_filter = And(row_filter, where)
    try:
        row_filter = fit_literals(row_filter, schema, scan.case_sensitive)
        bound: BooleanExpression = bind(schema, row_filter, scan.case_sensitive)
    except (ValueError, TypeError, ArithmeticError) as error:
        if "Could not find field" in str(error):
            name = str(error).rsplit("name ", 1)[-1].split(",")[0]
            raise UnknownColumnError(f"the filter: {_no_column(name, schema)}") from error
        raise InvalidArgumentError(f"the filter {row_filter} does not fit: {error}") from error
    if isinstance(bound, (AlwaysTrue, AlwaysFalse)):
        return bound
    return row_filter


def _select(schema: Schema, columns: Sequence[str] | None, scan: DataScan) -> Schema:
    if isinstance(columns, str):
        raise InvalidArgumentError(f"columns is the string {columns!r}: give a list of names")
    if columns is None:
        columns = scan.selected_fields
    elif "*" not in scan.selected_fields:
        raise InvalidArgumentError(
            f"the DataScan already selects {', '.join(scan.selected_fields)}: leave columns out"
        )
    if not columns:
        raise InvalidArgumentError("columns is empty: name at least one, or leave it out for all")
    if "*" in columns:
        return schema
    try:
        return schema.select(*columns, case_sensitive=scan.case_sensitive)
    except ValueError as error:
        for name in columns:
            try:
                schema.find_field(name, scan.case_sensitive)
            except ValueError:
                raise UnknownColumnError(_no_column(name, schema)) from error
        raise InvalidArgumentError(f"columns {list(columns)} can't be selected: {error}") from error


def _no_column(name: str, schema: Schema) -> str:
    near = difflib.get_close_matches(name.strip("'\""), schema.column_names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(schema.column_names[:20])}"
    return f"there is no column {name!r}: {hint}"


def _read_schema(
    schema: Schema, selected: Schema, row_filter: BooleanExpression, case_sensitive: bool
) -> Schema:
    bound = bind(schema, row_filter, case_sensitive)
    wanted = set(_leaf_ids(selected)) | {_readable(schema, i) for i in extract_field_ids(bound)}
    if wanted <= set(_leaf_ids(selected)):
        return selected
    return prune_columns(schema, wanted, select_full_types=False)


def _readable(schema: Schema, field_id: int) -> int:
    """What to read for a filter on the field: of a list or map, asked for nulls, one leaf."""
    kind = schema.find_type(field_id)
    return field_id if isinstance(kind, StructType) else _first_leaf(field_id, kind)


def _first_leaf(field_id: int, kind: IcebergType) -> int:
    if isinstance(kind, ListType):
        return _first_leaf(kind.element_id, kind.element_type)
    if isinstance(kind, MapType):
        return _first_leaf(kind.key_id, kind.key_type)
    if isinstance(kind, StructType) and kind.fields:
        return _first_leaf(kind.fields[0].field_id, kind.fields[0].field_type)
    return field_id


def _leaf_ids(schema: Schema) -> list[int]:
    nested = (StructType, ListType, MapType)
    empty = StructType()
    return [
        i
        for i in schema.field_ids
        if not isinstance(schema.find_type(i), nested) or schema.find_type(i) == empty
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


def _split_of_task(asked: ScanRequest, task: FileScanTask) -> Split:
    file = task.file
    if file.file_format not in (FileFormat.PARQUET, FileFormat.ORC):
        raise UnsupportedFeatureError(
            f"{file.file_path} is an {file.file_format.value} data file: icestream reads Parquet "
            "and ORC. Rewrite the file as Parquet with the engine that wrote it"
        )
    return Split(
        path=file.file_path,
        rows=file.record_count,
        bytes=file.file_size_in_bytes,
        format=file.file_format.value.lower(),
        row_groups=None,
        filtered=not _all_rows_match(asked, task),
        deletes=tuple(
            _delete_file(d) for d in sorted(task.delete_files, key=lambda d: d.file_path)
        ),
        constants=_constants(asked, file),
        context=asked.context,
    )


def _all_rows_match(asked: ScanRequest, task: FileScanTask) -> bool:
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
        records=file.record_count,
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


def with_row_groups(split: Split, row_groups: tuple[int, ...], rows: int, size: int) -> Split:
    """The part of a split that some of its row groups make up."""
    return replace(split, row_groups=row_groups, rows=rows, bytes=size)
