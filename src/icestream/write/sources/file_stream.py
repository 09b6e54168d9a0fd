"""Local files as one stream of Arrow batches, one file after the other."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from icestream.catalogs.redaction import redact
from icestream.errors import InvalidArgumentError, SchemaMismatchError, SourceError
from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget, as_budget
from icestream.write.sources.file_store import is_hidden, no_files
from icestream.write.sources.formats import FILE_FORMATS, FileFormat, format_of
from icestream.write.sources.hive_partition import PartitionColumns, Values, partition_values
from icestream.write.sources.source_file import unknown_format
from icestream.write.sources.stored_batches import ReadingShare, StoredFile


class SourceFiles:
    """Parquet, CSV, JSON lines, Arrow IPC and ORC files as a stream, in the order given.

    Columns are matched by name. A column that a file lacks is null there. Where the types of a
    column differ between files, the wider type is used.

    Args:
        names: Paths, globs (`**` matches folders), or folders. All files of a folder with a known
            format are read, except those whose names start with `_` or `.`.
        format: The files' format; by default their names show it. CSV and JSON files may be
            compressed (`.csv.gz`).
        types: The table's schema. Text is read in the table's types; types of other columns are
            guessed from the first block of a file.
        hive_partitions: Whether folder names such as `year=2025` become columns.
        memory: The limit of the load that reads the files, or its budget. Half of it is for
            reading.

    Attributes:
        schema: The schema of every batch.
        paths: The files.
        bytes: Their total size.
        files_read: Number of files opened so far, for progress.
        rows_read: Number of rows read so far.
        is_read: Whether all rows were read.

    Raises:
        SourceError: If there are no files, or a file can't be read.
        SchemaMismatchError: If the columns of two files do not fit together.
        MemoryBudgetError: If a Parquet, ORC or Arrow file can't be read in half of the limit.

    Memory: half of the limit for Parquet, ORC and Arrow files; 1 MB blocks of text.
    """

    def __init__(
        self,
        names: Sequence[str | os.PathLike[str]],
        *,
        format: FileFormat | None = None,
        types: pa.Schema | None = None,
        hive_partitions: bool = True,
        memory: int | str | MemoryBudget = DEFAULT_MEMORY,
    ) -> None:
        if format is not None and format not in FILE_FORMATS:
            raise InvalidArgumentError(
                f"format is {format!r}: give one of {', '.join(FILE_FORMATS)}"
            )
        listed = [pair for name in names for pair in _listed(os.fspath(name), format)]
        self.paths = tuple(path for path, _ in listed)
        self._values: dict[Path, Values] = {
            path: partition_values(str(path.absolute()), str(base.absolute()))
            for path, base in listed
            if hive_partitions
        }
        known_types = {each.name: each.type for each in types or ()}
        self._partitions = PartitionColumns.of(self._values.values(), known_types.get)
        self._formats = {path: format or _format_of(path) for path in self.paths}
        self._types = types
        self._share = ReadingShare(as_budget(memory))
        self.bytes = sum(path.stat().st_size for path in self.paths)
        self.files_read = 0
        self.rows_read = 0
        self.is_read = False
        self.schema = self._one_schema()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for path in self.paths:
            put = self._partitions.put(self._values.get(path, ()), str(path))
            self.files_read += 1
            with read_errors(str(path)), closing(self._batches_of(path)) as batches:
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
        schemas = [self._schema_of(path) for path in self.paths]
        return self._partitions.over(one_schema(schemas, "the files' columns"))

    def _schema_of(self, path: Path) -> pa.Schema:
        with read_errors(str(path)):
            stored = self._stored(path)
            if stored is not None:
                return stored.schema()
            schema, _, close = _OPENERS[self._formats[path]](path, self._types)
            close()
            return schema

    def _batches_of(self, path: Path) -> Generator[pa.RecordBatch, None, None]:
        stored = self._stored(path)
        if stored is not None:
            yield from stored.batches()
            return
        _, batches, close = _OPENERS[self._formats[path]](path, self._types)
        try:
            yield from batches
        finally:
            close()

    def _stored(self, path: Path) -> StoredFile | None:
        """The file, unless it is a text file."""
        format_ = self._formats[path]
        if format_ in _OPENERS:
            return None
        return StoredFile(format_, str(path), partial(pa.OSFile, str(path)), self._share)


Opened = tuple[pa.Schema, Iterator[pa.RecordBatch], Callable[[], None]]


def _listed(name: str, format: FileFormat | None) -> list[tuple[Path, Path]]:
    """The files of a path, a glob or a folder, sorted, and the folder that was listed."""
    path = base = Path(name)
    if path.is_dir():
        inside = (each for each in path.rglob("*") if each.is_file())
        shown = (each for each in inside if not is_hidden(each.relative_to(path).parts))
        files = [each for each in shown if format or format_of(each.name)]
    elif path.exists():
        files, base = [path], path.parent
    else:
        base = Path(re.split(r"[*?\[]", name)[0] + "x").parent
        matches = glob.glob(name, recursive=True)  # noqa: PTH207  # absolute ones, too
        files = [Path(each) for each in matches if Path(each).is_file()]
    if not files:
        raise no_files(name)
    return [(each, base) for each in sorted(files)]


def _format_of(path: Path) -> FileFormat:
    format_ = format_of(path.name)
    if format_ is None:
        raise unknown_format(str(path))
    return format_


@contextmanager
def read_errors(path: str) -> Iterator[None]:
    """Add the file's path to the errors of its reader."""
    try:
        yield
    except pa.ArrowCancelled:
        raise
    except (pa.ArrowException, OSError, UnicodeError) as error:
        text = redact(" ".join(str(error).split()))
        raise SourceError(
            f"{redact(path)!r} can't be read: {text}. Fix or exclude the file"
        ) from error


def one_schema(schemas: Sequence[pa.Schema], what: str) -> pa.Schema:
    """The union of all columns, by name; where types differ, the wider one is used.

    Raises:
        SchemaMismatchError: If two types of a column do not fit together.
    """
    if not schemas:
        return pa.schema([])
    try:
        return pa.unify_schemas(
            [schema.remove_metadata() for schema in schemas], promote_options="permissive"
        )
    except pa.ArrowException as error:
        differences = (f"{what} do not go together: {error}",)
        raise SchemaMismatchError(
            f"{differences[0]}. Load them in groups that agree, or cast them first",
            differences=differences,
        ) from error


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
    """Cast a column; unlike Arrow's cast, this one also casts text to times of day."""
    if pa.types.is_time(kind) and pa.types.is_string(column.type):
        # Arrow casts text to timestamps, but not to times of day.
        moments = pc.binary_join_element_wise("1970-01-01", column, " ")
        return moments.cast(pa.timestamp(kind.unit)).cast(kind)
    return column.cast(kind)


def _open_csv(path: Path, types: pa.Schema | None) -> Opened:
    import pyarrow.csv as csv

    convert = csv.ConvertOptions(column_types=_readable(types), strings_can_be_null=True)
    convert.quoted_strings_can_be_null = False  # "" is an empty string, no text is null
    reader = csv.open_csv(path, convert_options=convert)
    return reader.schema, iter(reader), reader.close


def _open_json(path: Path, types: pa.Schema | None) -> Opened:
    import pyarrow.json as json

    reader = json.open_json(path)
    known = _readable(types, nested=True)
    # Only columns of the file: the reader would fill others with nulls, which a merge would write.
    kinds = {name: known[name] for name in reader.schema.names if name in known}
    if not kinds:
        return reader.schema, iter(reader), reader.close
    reader.close()
    # The reader takes dates and times for numbers: they are read as text, and cast.
    read_as = pa.schema([(name, days_as_text(kind)) for name, kind in kinds.items()])
    parse = json.ParseOptions(explicit_schema=read_as)
    reader = json.open_json(path, parse_options=parse)
    schema = pa.schema([(field.name, kinds.get(field.name, field.type)) for field in reader.schema])
    return schema, (fit_batch(batch, schema) for batch in reader), reader.close


_OPENERS: dict[FileFormat, Callable[[Path, pa.Schema | None], Opened]] = {
    "csv": _open_csv,
    "json": _open_json,
}


def _readable(types: pa.Schema | None, *, nested: bool = False) -> dict[str, Any]:
    """The columns whose types the text readers know; types of others are guessed."""
    return {field.name: field.type for field in types or () if is_readable_text(field.type, nested)}


def days_as_text(kind: pa.DataType) -> pa.DataType:
    """The type with text instead of dates and times, at every level."""
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, days_as_text(f.type), f.nullable) for f in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        make = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return make(kind.value_field.with_type(days_as_text(kind.value_type)))
    return kind


def is_readable_text(kind: pa.DataType, nested: bool) -> bool:
    """Whether the text readers know a type; only the JSON reader knows nested ones."""
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
