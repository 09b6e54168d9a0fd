"""Files on the local disk as one stream of Arrow batches.

PyArrow's streaming readers, one file after the other, rather than its dataset scanner: that decodes
whole row groups, several at a time.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from icestream.errors import InvalidArgumentError, SchemaMismatchError, SourceError
from icestream.write.hive_partition import PartitionColumns, Values, partition_values
from icestream.write.stored_batches import stored_batches

FileFormat = Literal["parquet", "csv", "json", "arrow", "orc"]

FILE_SUFFIXES: dict[str, FileFormat] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".orc": "orc",
}
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".zst", ".lz4")


class SourceFiles:
    """Parquet, CSV, JSON lines, Arrow IPC and ORC files as a stream, in the order given.

    Columns are matched by name. One that a file lacks is null there, and where files differ in a
    type the wider one counts.

    Args:
        names: Paths, globs (`**` goes through folders), or folders, of which every file of a known
            format is taken but those whose names start with `_` or `.`.
        format: What the files are; by default their names say so. CSV and JSON may be compressed
            (`.csv.gz`).
        types: The table's schema, so that text is read as what the table has: what is not in it is
            guessed from the first block of a file.
        hive_partitions: Whether names of folders (`year=2025`) are columns.

    Attributes:
        schema: The schema of every batch.
        paths: The files.
        bytes: Their size together.
        files_read: Files that have been opened so far; for progress.
        rows_read: Rows that have been given out so far.
        is_read: Whether all of them have.

    Raises:
        SourceError: If there is no such file, or one can't be read.
        SchemaMismatchError: If the files' columns do not go together.

    Memory: a few pages of each column of a Parquet file; a block of 1 MB of text; a batch of an
        IPC file; a stripe's columns of an ORC file.
    """

    def __init__(
        self,
        names: Sequence[str | os.PathLike[str]],
        *,
        format: FileFormat | None = None,
        types: pa.Schema | None = None,
        hive_partitions: bool = True,
    ) -> None:
        if format is not None and format not in get_args(FileFormat):
            raise InvalidArgumentError(
                f"format is {format!r}: give one of {', '.join(get_args(FileFormat))}"
            )
        found = [pair for name in names for pair in _found(os.fspath(name), format)]
        self.paths = tuple(path for path, _ in found)
        self._values: dict[Path, Values] = {
            path: partition_values(str(path.absolute()), str(base.absolute()))
            for path, base in found
            if hive_partitions
        }
        self._partitions = PartitionColumns.of(self._values.values(), _types_of(types))
        self._formats = {path: format or _format_of(path) for path in self.paths}
        self._types = types
        self.bytes = sum(path.stat().st_size for path in self.paths)
        self.files_read = 0
        self.rows_read = 0
        self.is_read = False
        self.schema = self._one_schema()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for path in self.paths:
            put = self._partitions.put(self._values.get(path, ()), str(path))
            self.files_read += 1
            with self._opened(path) as (_, batches), _said(path):
                for batch in batches:
                    fitted = fit_batch(put(batch), self.schema)
                    self.rows_read += batch.num_rows
                    del batch
                    yield fitted
                    del fitted
        self.is_read = True

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self.schema, iter(self))
        return reader.__arrow_c_stream__(requested_schema)

    def _one_schema(self) -> pa.Schema:
        schemas = []
        for path in self.paths:
            with self._opened(path) as (schema, _):
                schemas.append(schema.remove_metadata())
        try:
            stored = pa.unify_schemas(schemas, promote_options="permissive")
            return self._partitions.over(stored)
        except pa.ArrowException as error:
            differences = (f"the files' columns do not go together: {error}",)
            raise SchemaMismatchError(
                f"{differences[0]}. Load them in groups that agree, or cast them first",
                differences=differences,
            ) from error

    @contextmanager
    def _opened(self, path: Path) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
        with _said(path):
            opened = _OPENERS[self._formats[path]](path, self._types)
        schema, batches, close = opened
        try:
            yield schema, batches
        finally:
            close()


Opened = tuple[pa.Schema, Iterator[pa.RecordBatch], Callable[[], None]]


def _types_of(schema: pa.Schema | None) -> Callable[[str], pa.DataType | None]:
    """The types of columns by name; None for those that a schema does not have."""
    known = {each.name: each.type for each in schema or ()}
    return known.get


def _found(name: str, format: FileFormat | None) -> list[tuple[Path, Path]]:
    """The files of a path, a glob or a folder, sorted, and the folder that was listed."""
    path = base = Path(name)
    if path.is_dir():
        found = [each for each in path.rglob("*") if each.is_file() and _is_data(each, path)]
        found = [each for each in found if format or _suffix(each) in FILE_SUFFIXES]
    elif path.exists():
        found, base = [path], path.parent
    else:
        base = Path(re.split(r"[*?\[]", name)[0] + "x").parent
        matches = glob.glob(name, recursive=True)  # noqa: PTH207  # absolute ones, too
        found = [Path(each) for each in matches if Path(each).is_file()]
    if not found:
        raise SourceError(f"no file is at {name!r}: check the path, or quote a glob as '*.parquet'")
    return [(each, base) for each in sorted(found)]


def _is_data(path: Path, folder: Path) -> bool:
    """Whether no name is hidden; `_year=2025` is a column."""
    return not any(
        part.startswith(".") or (part.startswith("_") and "=" not in part)
        for part in path.relative_to(folder).parts
    )


def _suffix(path: Path) -> str:
    name = path.name.lower()
    for compressed in COMPRESSED_SUFFIXES:
        name = name.removesuffix(compressed)
    return Path(name).suffix


def _format_of(path: Path) -> FileFormat:
    try:
        return FILE_SUFFIXES[_suffix(path)]
    except KeyError:
        raise SourceError(
            f"the name of {str(path)!r} does not say what it is: tell with format= one of "
            f"{', '.join(get_args(FileFormat))}"
        ) from None


@contextmanager
def _said(path: Path) -> Iterator[None]:
    """Errors of a reader, with the file's name; those of whoever takes the batches are not here."""
    try:
        yield
    except pa.ArrowCancelled:
        raise
    except (pa.ArrowException, OSError, UnicodeError) as error:
        text = " ".join(str(error).split())
        raise SourceError(f"{str(path)!r} can't be read: {text}. Mend or leave out the file") from (
            error
        )


def fit_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with all columns of the schema."""
    if batch.schema.equals(schema):
        return batch
    columns = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            columns.append(cast_text(batch.column(index), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def cast_text(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column in another type; text may become a time of day, too."""
    if pa.types.is_time(kind) and pa.types.is_string(column.type):
        # Arrow has no cast from text to a time, but one to a moment.
        moments = pc.binary_join_element_wise("1970-01-01", column, " ")
        return moments.cast(pa.timestamp(kind.unit)).cast(kind)
    return column.cast(kind)


def _open_csv(path: Path, types: pa.Schema | None) -> Opened:
    import pyarrow.csv as csv

    convert = csv.ConvertOptions(column_types=_readable(types), strings_can_be_null=True)
    convert.quoted_strings_can_be_null = False  # "" is an empty text, nothing is null
    reader = csv.open_csv(path, convert_options=convert)
    return reader.schema, iter(reader), reader.close


def _open_json(path: Path, types: pa.Schema | None) -> Opened:
    import pyarrow.json as json

    reader = json.open_json(path)
    known = _readable(types, nested=True)
    # Of the columns that are there: the reader makes nulls of others, which would be merged.
    told = {name: known[name] for name in reader.schema.names if name in known}
    if not told:
        return reader.schema, iter(reader), reader.close
    reader.close()
    # Dates and times it takes for numbers: they are read as text, and cast.
    read_as = pa.schema([(name, days_as_text(kind)) for name, kind in told.items()])
    parse = json.ParseOptions(explicit_schema=read_as)
    reader = json.open_json(path, parse_options=parse)
    schema = pa.schema([(field.name, told.get(field.name, field.type)) for field in reader.schema])
    return schema, (fit_batch(batch, schema) for batch in reader), reader.close


def _open_stored(format: FileFormat) -> Callable[[Path, pa.Schema | None], Opened]:
    return lambda path, types: stored_batches(format, pa.OSFile(str(path)))


_OPENERS: dict[FileFormat, Callable[[Path, pa.Schema | None], Opened]] = {
    "parquet": _open_stored("parquet"),
    "csv": _open_csv,
    "json": _open_json,
    "arrow": _open_stored("arrow"),
    "orc": _open_stored("orc"),
}


def _readable(types: pa.Schema | None, *, nested: bool = False) -> dict[str, Any]:
    """The columns whose type the readers of text know; others come as they look."""
    return {field.name: field.type for field in types or () if is_readable_text(field.type, nested)}


def days_as_text(kind: pa.DataType) -> pa.DataType:
    """The type with text for dates and times, in it too."""
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, days_as_text(f.type), f.nullable) for f in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        make = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return make(kind.value_field.with_type(days_as_text(kind.value_type)))
    return kind


def is_readable_text(kind: pa.DataType, nested: bool) -> bool:
    """Whether the readers of text know a type; of nested ones only that of JSON does."""
    if isinstance(kind, pa.BaseExtensionType):
        return False
    if pa.types.is_struct(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = [kind.field(index).type for index in range(kind.num_fields)]
        return nested and all(
            is_readable_text(each, nested) and not pa.types.is_time(each) for each in inner
        )
    if pa.types.is_nested(kind):
        return False
    return not pa.types.is_binary(kind) and not pa.types.is_fixed_size_binary(kind)
