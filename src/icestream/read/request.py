"""The arguments of a scan, checked against the table's metadata before anything is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import DataScan, IncrementalAppendScan, Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    ancestors_between_ids,
    is_ancestor_of,
    is_parent_ancestor_of,
)
from pyiceberg.types import IcebergType, ListType, MapType, StructType
from pyiceberg.utils.config import Config

from icestream.catalogs.credentials import access_to
from icestream.errors import CatalogError, InvalidArgumentError, UnknownColumnError
from icestream.read.filters.fitting import fit_filter, no_column
from icestream.read.project.origin import PartitionUnion, check_metadata_columns
from icestream.read.project.reshape import Mask, Transform, reshaping
from icestream.read.split import ReadContext

Source = Table | DataScan | IncrementalAppendScan


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """The arguments of a scan, resolved against the table's metadata.

    Attributes:
        data_scan: The table, snapshot and filter.
        context: The information for all splits.
        limit: Maximum number of rows to return.
        appends: Read only the files that these snapshots added. None for the whole table.
    """

    data_scan: DataScan
    context: ReadContext
    limit: int | None
    appends: tuple[Snapshot, ...] | None = None


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
    metadata_columns: Sequence[str] | None = None,
    case_sensitive: bool = True,
) -> ScanRequest:
    """Check every argument against the metadata, and resolve snapshot, schema and filter.

    Raises:
        InvalidArgumentError: If an argument is not valid for the table.
    """
    data_scan = _data_scan(source, case_sensitive)
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise InvalidArgumentError(f"limit is {limit!r}: give a whole number of rows, 0 or more")
    data_scan = _with_snapshot(data_scan, snapshot_id, branch, tag, as_of)
    appends = None
    if isinstance(source, IncrementalAppendScan):
        if any(value is not None for value in (snapshot_id, branch, tag, as_of)):
            raise InvalidArgumentError(
                "an IncrementalAppendScan already says which snapshots to read: leave snapshot_id, "
                "branch, tag and as_of out"
            )
        appends = _appends(source)
    schema = _schema_of(data_scan, branch)
    # PyIceberg binds the filter to the table's current schema. An older snapshot may have had other
    # column names, so the schema of that snapshot becomes the current one.
    metadata = data_scan.table_metadata.model_copy(update={"current_schema_id": schema.schema_id})
    row_filter = _row_filter(data_scan, where, schema)
    selected = _select(schema, columns, data_scan)
    limits = [n for n in (limit, data_scan.limit) if n is not None]
    identifier, location = data_scan.table_identifier, metadata.location
    io = access_to(data_scan.io, data_scan.catalog, identifier, location)
    data_scan = data_scan.update(table_metadata=metadata, row_filter=row_filter, io=io)
    snapshot = data_scan.snapshot() if appends is None else next(iter(appends[-1:]), None)
    downcast = Config().get_bool("downcast-ns-timestamp-to-us-on-write")
    table = ".".join(data_scan.table_identifier or ()) or metadata.location
    context = ReadContext(
        table=table,
        snapshot_id=snapshot.snapshot_id if snapshot else None,
        io=data_scan.io,
        schema=selected,
        read_schema=_read_schema(schema, selected, row_filter, data_scan.case_sensitive),
        row_filter=row_filter,
        case_sensitive=data_scan.case_sensitive,
        name_mapping=name_mapping_of(metadata, table),
        downcast_ns=downcast if downcast is not None else metadata.format_version <= 2,
        metadata_columns=check_metadata_columns(metadata_columns, schema),
    )
    if "_partition" in context.metadata_columns:
        context = replace(context, partition_type=_partition_type(metadata, context.table))
    return ScanRequest(data_scan, context, min(limits) if limits else None, appends)


def name_mapping_of(metadata: TableMetadata, table: str) -> NameMapping | None:
    """The table's name mapping, for files without field ids; None if it has none.

    Raises:
        CatalogError: If the table's property is malformed.
    """
    try:
        mapping = metadata.name_mapping()
        waiting = list(mapping.root) if mapping is not None else []
        while waiting:
            field = waiting.pop()
            if not isinstance(field.names, list):  # PyIceberg accepts a field without names.
                raise ValueError("a field has no names")
            waiting += field.fields
    except (ValueError, TypeError, RecursionError) as error:
        shown = " ".join(str(error).split())[:200]
        raise CatalogError(
            f"the property {TableProperties.DEFAULT_NAME_MAPPING} of {table} is malformed: "
            f"{shown}. "
            'Set it to a list such as [{"field-id": 1, "names": ["id"]}], or remove it'
        ) from error
    return mapping


def _partition_type(metadata: TableMetadata, table: str) -> StructType:
    kind = PartitionUnion(metadata).type
    if not kind.fields:
        raise InvalidArgumentError(
            f"{table} was never partitioned and has no '_partition': leave it out of "
            "metadata_columns"
        )
    return kind


def _data_scan(source: Source, case_sensitive: bool) -> DataScan:
    if isinstance(source, DataScan):
        return source if case_sensitive else source.with_case_sensitive(False)
    if isinstance(source, Table):
        return source.scan(case_sensitive=case_sensitive)
    if isinstance(source, IncrementalAppendScan):
        return DataScan(
            table_metadata=source.table_metadata,
            io=source.io,
            row_filter=source.row_filter,
            selected_fields=source.selected_fields,
            case_sensitive=source.case_sensitive and case_sensitive,
            options=source.options,
            limit=source.limit,
        )
    raise InvalidArgumentError(
        f"scan() takes a table's name such as 'db.t', or a PyIceberg Table, DataScan or "
        f"IncrementalAppendScan, not {type(source).__name__}"
    )


def _appends(source: IncrementalAppendScan) -> tuple[Snapshot, ...]:
    """The snapshots of the range that append rows, oldest first, as PyIceberg selects them.

    Snapshots that overwrite, delete or replace are skipped: the scan only adds up appends.
    """
    metadata, first, last = source.table_metadata, source.from_snapshot_id, source.to_snapshot_id
    head = metadata.current_snapshot() if last is None else metadata.snapshot_by_id(last)
    if head is None:
        if first is None and last is None:
            return ()
        shown = "the table has no snapshots" if last is None else f"it has no snapshot {last}"
        raise InvalidArgumentError(
            f"the range of the IncrementalAppendScan can't be read: {shown}. table.history() lists "
            "the existing snapshots"
        )
    is_before = first is None
    if first is not None and source.from_snapshot_inclusive:
        is_before = is_ancestor_of(head.snapshot_id, first, metadata)
        start = metadata.snapshot_by_id(first)
        first = start.parent_snapshot_id if start is not None else None
    elif first is not None:  # This snapshot may have expired: being a parent is enough.
        is_before = is_parent_ancestor_of(head.snapshot_id, first, metadata)
    if not is_before:
        raise InvalidArgumentError(
            f"the range of the IncrementalAppendScan can't be read: snapshot "
            f"{source.from_snapshot_id} does not come before snapshot {head.snapshot_id} in the "
            "table's history. It may have expired, or nothing was committed since"
        )
    between = ancestors_between_ids(first, head.snapshot_id, metadata)
    appends = [s for s in between if s.summary and s.summary.operation is Operation.APPEND]
    return tuple(reversed(appends))


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
    if as_of is not None:
        snapshot_id = _snapshot_as_of(scan, as_of)
    if snapshot_id is not None:
        _check_snapshot(scan, snapshot_id)
        return scan.update(snapshot_id=snapshot_id)
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
            f"the table has no snapshot {snapshot_id}: it may have expired. table.history() lists "
            "the existing snapshots"
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
        raise InvalidArgumentError(
            f"the table has no snapshot as old as {as_of}. table.history() lists the existing "
            "snapshots"
        )
    return past[-1].snapshot_id  # The last one of that millisecond.


def _schema_of(scan: DataScan, branch: str | None) -> Schema:
    """The table's current schema for a branch; the snapshot's schema for a tag or a snapshot."""
    metadata = scan.table_metadata
    if scan.snapshot_id is None or branch is not None:
        return metadata.schema()
    snapshot = metadata.snapshot_by_id(scan.snapshot_id)
    wanted = snapshot.schema_id if snapshot else None
    return next((s for s in metadata.schemas if s.schema_id == wanted), metadata.schema())


def _row_filter(
    scan: DataScan, where: str | BooleanExpression | None, schema: Schema
) -> BooleanExpression:
    row_filter = fit_filter(scan.row_filter, schema, scan.case_sensitive)
    if where is not None:
        row_filter = And(row_filter, fit_filter(where, schema, scan.case_sensitive))
    bound: BooleanExpression = bind(schema, row_filter, scan.case_sensitive)
    return bound if isinstance(bound, (AlwaysTrue, AlwaysFalse)) else row_filter


def _select(schema: Schema, columns: Sequence[str] | None, scan: DataScan) -> Schema:
    in_order = columns is not None
    if columns is None:
        columns = scan.selected_fields
    elif isinstance(columns, str) or not isinstance(columns, Iterable):
        raise InvalidArgumentError(f"columns is {columns!r}: give a list of names")
    elif "*" not in scan.selected_fields:
        raise InvalidArgumentError(
            f"the DataScan already selects {', '.join(scan.selected_fields)}: leave columns out"
        )
    columns = list(columns)
    if not columns:
        raise InvalidArgumentError("columns is empty: name at least one, or leave it out for all")
    wrong = [name for name in columns if not isinstance(name, str)]
    if wrong:
        raise InvalidArgumentError(f"columns holds {wrong[0]!r}: give names")
    if "*" in columns:
        return schema
    try:
        selected = schema.select(*columns, case_sensitive=scan.case_sensitive)
    except ValueError as error:
        for name in columns:
            try:
                schema.find_field(name, scan.case_sensitive)
            except ValueError:
                raise UnknownColumnError(no_column(name, schema.column_names)) from error
        raise InvalidArgumentError(f"columns {list(columns)} can't be selected: {error}") from error
    return _in_order(selected, columns, schema, scan.case_sensitive) if in_order else selected


def _in_order(
    selected: Schema, columns: Sequence[str], schema: Schema, case_sensitive: bool
) -> Schema:
    """The selected columns, in the order in which the names first mention them."""
    ids = [schema.find_field(name, case_sensitive).field_id for name in columns]
    places: dict[int, int] = {}
    for field in schema.fields:
        inside = {field.field_id, *Schema(field).field_ids}
        places[field.field_id] = min(
            (at for at, field_id in enumerate(ids) if field_id in inside), default=len(ids)
        )
    fields = sorted(selected.fields, key=lambda field: places[field.field_id])
    return Schema(
        *fields,
        schema_id=selected.schema_id,
        identifier_field_ids=selected.identifier_field_ids,
    )


def filter_ids(schema: Schema, row_filter: BooleanExpression, case_sensitive: bool) -> set[int]:
    """The ids of the fields to read for a filter."""
    bound = bind(schema, row_filter, case_sensitive)
    return {_readable(schema, field_id) for field_id in extract_field_ids(bound)}


def _read_schema(
    schema: Schema, selected: Schema, row_filter: BooleanExpression, case_sensitive: bool
) -> Schema:
    wanted = set(_leaf_ids(selected)) | filter_ids(schema, row_filter, case_sensitive)
    if wanted <= set(_leaf_ids(selected)):
        return selected
    return prune_columns(schema, wanted, select_full_types=False)


def _readable(schema: Schema, field_id: int) -> int:
    """The field to read for a filter. One leaf is enough to find nulls of a list or map."""
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


def with_fields(scan: ScanRequest, fields: Schema) -> ScanRequest:
    """The same request for exactly these fields of the table, in this order.

    Args:
        scan: A request for all columns.
        fields: Fields of the table. A struct may have only some of its fields.
    """
    context, metadata = scan.context, scan.data_scan.table_metadata
    known = metadata.schema()
    if set(_leaf_ids(fields)) <= known.field_ids:
        read = _read_schema(known, fields, context.row_filter, context.case_sensitive)
    else:  # The table has dropped some of them since.
        others = (f for f in known.fields if f.field_id not in fields.field_ids)
        read = Schema(*fields.fields, *others)
    return replace(scan, context=replace(context, schema=fields, read_schema=read))


def with_reshape(
    scan_request: ScanRequest, mask: Mapping[str, Mask] | None, transform: Transform | None
) -> ScanRequest:
    """A scan with masks and a transform.

    Raises:
        InvalidArgumentError: If they do not fit the table.
    """
    metadata = scan_request.data_scan.table_metadata
    context = reshaping(
        scan_request.context,
        metadata.schema(),
        metadata.partition_specs,
        mask=mask,
        transform=transform,
    )
    return replace(scan_request, context=context)
