"""Delete files of every kind, committed as real snapshots.

Each function commits ONE snapshot with a manifest of DELETES content and refreshes the table:

- `commit_position_deletes`: Parquet or ORC position deletes, one file per data file or partition.
- `commit_equality_deletes`: an equality delete file, which a scan must refuse.
- `commit_deletion_vectors`: deletion vectors in a Puffin file, on a version-3 table.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import ORC_FIELD_ID_KEY, PYARROW_PARQUET_FIELD_ID_KEY, schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.typedef import Record

from tests.support.commits import commit_files, data_files, delete_entries
from tests.support.manifests import field_of
from tests.support.puffin import puffin_file

PATH_FIELD_ID = 2147483546
POSITION_FIELD_ID = 2147483545


def commit_position_deletes(
    table: Table,
    positions: Mapping[str, Iterable[int]],
    *,
    one_file: bool = False,
    file_format: Literal["parquet", "orc"] = "parquet",
) -> list[str]:
    """Delete rows by position; return the paths of the delete files written.

    Args:
        table: A version-2 table.
        positions: Row positions to delete, by data file path as it stands in the manifest.
        one_file: One delete file for all data files of a partition, instead of one for each.
        file_format: The format of the delete files.
    """
    if table.format_version != 2:
        raise ValueError("position delete files are for version 2; use commit_deletion_vectors")
    files = write_position_deletes(
        table, data_files(table), positions, one_file=one_file, file_format=file_format
    )
    commit_files(table, added_delete_files=files)
    return [delete_file.file_path for delete_file in files]


def write_position_deletes(
    table: Table,
    targets: Iterable[DataFile],
    positions: Mapping[str, Iterable[int]],
    *,
    one_file: bool = False,
    file_format: Literal["parquet", "orc"] = "parquet",
) -> list[DataFile]:
    """Write position delete files for `targets` without committing them.

    With `commit_files`, data and its deletes can land in the same snapshot.
    """
    by_path = _targets_by_path(targets, positions)
    groups: dict[Any, list[str]] = defaultdict(list)
    for path in positions:
        target = by_path[path]
        key = (target.spec_id, target.partition) if one_file else path
        groups[key].append(path)
    written = []
    for paths in groups.values():
        rows = sorted((path, position) for path in paths for position in set(positions[path]))
        columns = [[path for path, _ in rows], [position for _, position in rows]]
        contents = pa.Table.from_arrays(
            [pa.array(columns[0], pa.string()), pa.array(columns[1], pa.int64())],
            schema=_position_delete_schema(file_format),
        )
        bounds = {PATH_FIELD_ID: min(paths).encode()}, {PATH_FIELD_ID: max(paths).encode()}
        written.append(
            _write_delete_file(
                table,
                contents,
                FileFormat(file_format),
                content=DataFileContent.POSITION_DELETES,
                like=by_path[paths[0]],
                lower_bounds=bounds[0],
                upper_bounds=bounds[1],
            )
        )
    return written


def commit_equality_deletes(
    table: Table,
    field_names: Sequence[str],
    rows: pa.Table | Sequence[Mapping[str, Any]],
    *,
    like_data_file: str | None = None,
) -> str:
    """Delete rows equal to `rows` in the named fields; return the delete file's path.

    Args:
        table: A table of version 2 or 3.
        field_names: The top-level fields that decide equality.
        rows: Their values.
        like_data_file: The data file whose spec and partition the deletes take. Without it they
            are global if the table's current spec is unpartitioned, and else an error.
    """
    schema = table.schema().select(*field_names)
    arrow_schema = schema_to_pyarrow(schema)
    if not isinstance(rows, pa.Table):
        rows = pa.Table.from_pylist([dict(row) for row in rows], schema=arrow_schema)
    like = None
    if like_data_file is not None:
        like = _targets_by_path(data_files(table), [like_data_file])[like_data_file]
    elif not table.spec().is_unpartitioned():
        raise ValueError("name a data file whose partition the deletes take: like_data_file=...")
    delete_file = _write_delete_file(
        table,
        rows.select(list(field_names)).cast(arrow_schema),
        FileFormat.PARQUET,
        content=DataFileContent.EQUALITY_DELETES,
        like=like,
        equality_ids=[schema.find_field(name).field_id for name in field_names],
    )
    commit_files(table, added_delete_files=[delete_file])
    return delete_file.file_path


def commit_deletion_vectors(
    table: Table, positions: Mapping[str, Iterable[int]], *, one_puffin: bool = True
) -> list[str]:
    """Delete rows by deletion vectors; return the paths of the Puffin files written.

    A data file that has a vector already gets a new one with the positions of both, and the old
    entry is removed, as version 3 demands; the old blob may stay behind in a live Puffin file.

    Args:
        table: A version-3 table (`upgrade_to_v3`, `create_v3_table`).
        positions: Row positions to delete, by data file path as it stands in the manifest.
        one_puffin: All vectors in one Puffin file, instead of a file for each.
    """
    if table.format_version != 3:
        raise ValueError("deletion vectors are for version 3: upgrade_to_v3(table) first")
    by_path = _targets_by_path(data_files(table), positions)
    vectors = {path: set(deleted) for path, deleted in positions.items()}
    replaced = []
    for entry in delete_entries(table):
        path = field_of(entry.data_file, "referenced_data_file")
        if path in vectors and entry.data_file.file_format == FileFormat.PUFFIN:
            vectors[path] |= _read_vector(table, entry.data_file, path)
            replaced.append(entry)
    groups = [vectors] if one_puffin else [{path: vectors[path]} for path in vectors]
    puffins, added = [], []
    for group in groups:
        location = _new_location(table, "puffin")
        content, blobs = puffin_file(group)
        with table.io.new_output(location).create() as stream:
            stream.write(content)
        puffins.append(location)
        for blob in blobs:
            target = by_path[blob.data_file_path]
            vector = DataFile.from_args(
                _table_format_version=3,
                content=DataFileContent.POSITION_DELETES,
                file_path=location,
                file_format=FileFormat.PUFFIN,
                partition=target.partition,
                record_count=blob.cardinality,
                file_size_in_bytes=len(content),
                referenced_data_file=blob.data_file_path,
                content_offset=blob.offset,
                content_size_in_bytes=blob.length_bytes,
            )
            vector.spec_id = target.spec_id
            added.append(vector)
    commit_files(table, added_delete_files=added, replaced_delete_entries=replaced)
    return puffins


def _targets_by_path(targets: Iterable[DataFile], wanted: Iterable[str]) -> dict[str, DataFile]:
    by_path = {target.file_path: target for target in targets}
    if unknown := sorted(set(wanted) - set(by_path)):
        raise ValueError(f"not live data files of the table: {unknown}; it has {sorted(by_path)}")
    return by_path


def _position_delete_schema(file_format: str) -> pa.Schema:
    id_key = ORC_FIELD_ID_KEY if file_format == "orc" else PYARROW_PARQUET_FIELD_ID_KEY
    fields = [("file_path", pa.string(), PATH_FIELD_ID), ("pos", pa.int64(), POSITION_FIELD_ID)]
    return pa.schema(
        pa.field(name, arrow_type, nullable=False, metadata={id_key: str(field_id).encode()})
        for name, arrow_type, field_id in fields
    )


def _write_delete_file(
    table: Table,
    contents: pa.Table,
    file_format: FileFormat,
    *,
    content: DataFileContent,
    like: DataFile | None,
    **fields: Any,
) -> DataFile:
    location = _new_location(table, file_format.value.lower())
    output = table.io.new_output(location)
    with output.create() as stream:
        write = orc.write_table if file_format == FileFormat.ORC else pq.write_table
        write(contents, stream)
    delete_file = DataFile.from_args(
        _table_format_version=table.format_version,
        content=content,
        file_path=location,
        file_format=file_format,
        partition=like.partition if like is not None else Record(),
        record_count=contents.num_rows,
        file_size_in_bytes=len(output),
        **fields,
    )
    delete_file.spec_id = like.spec_id if like is not None else table.spec().spec_id
    return delete_file


def _new_location(table: Table, extension: str) -> str:
    return table.location_provider().new_data_location(f"{uuid.uuid4()}-deletes.{extension}")


def _read_vector(table: Table, puffin: DataFile, path: str) -> set[int]:
    with table.io.new_input(puffin.file_path).open() as stream:
        vectors = deletion_vectors_from_puffin_file(PuffinFile(stream.read()))
    return {p for v in vectors if v.referenced_data_file == path for p in v.to_vector().to_pylist()}
