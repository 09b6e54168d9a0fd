"""The columns and types of files, decided once, before the load starts.

Parquet, ORC and Arrow files record their types. The type of a text column is the one that the
caller gives, the table's, or a guess from the first lines of some files. So it is the same for all
files and on every engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson

from icestream.catalogs.redaction import redact
from icestream.errors import MemoryBudgetError, SourceError
from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget, parse_bytes
from icestream.write.schema.types import is_list, plain
from icestream.write.sources.batch_columns import is_readable_text, one_schema, read_errors
from icestream.write.sources.file_rows import stored_file
from icestream.write.sources.formats import TEXT_FORMATS
from icestream.write.sources.hive_partition import PartitionColumns
from icestream.write.sources.source_file import FileSource, SourceFile
from icestream.write.sources.stored_batches import ReadingShare
from icestream.write.sources.text.text_content import fitted_csv
from icestream.write.sources.text.text_format import CsvFormat, check_objects
from icestream.write.sources.text.text_lines import BLOCK_BYTES, first_lines, line_limit

_THREADS = 8
_MOST_SAMPLES = 64
_SAMPLE_BYTES = 16 << 20
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class KnownTypes:
    """Types of columns that are known before the files are read.

    Attributes:
        given: Columns that the caller gives types for.
        table: The table's columns, if the table exists.
        casts: Types that the load casts columns to. Text without types is read in these types, so
            that `007` stays text.
        fills: Whether to read all of the table's columns from JSON, as later lines may have columns
            that the first lines lack. Not for a merge, which would write them as nulls.
        is_new: Whether the table is created. Then types must be given or shown by values.
    """

    given: pa.Schema | None = None
    table: pa.Schema | None = None
    casts: pa.Schema | None = None
    fills: bool = True
    is_new: bool = False

    def type_of(self, name: str, *, nested: bool) -> pa.DataType | None:
        """The type to read a text column in; None to guess it."""
        for known in (self.given, None if nested else self.casts, self.table):
            if known is None or (index := known.get_field_index(name)) < 0:
                continue
            kind = known.field(index).type
            if is_readable_text(kind, nested):
                return text_type(kind)
            return None if nested and pa.types.is_nested(kind) else pa.string()
        return None


def columns_of(
    source: FileSource, known: KnownTypes, memory_bytes: int = parse_bytes(DEFAULT_MEMORY)
) -> pa.Schema:
    """The columns of all files together.

    Args:
        source: The files.
        known: Types that are known beforehand.
        memory_bytes: The memory limit.

    Raises:
        SourceError: If a file can't be read.
        SchemaMismatchError: If the columns of two files do not fit together.
        MemoryBudgetError: If a line of text, or the footer of a Parquet file, is too long for the
            limit.

    Memory: about 1 MB of each of 8 text files, or one file at a time if lines are longer; as many
        footers of Parquet files as fit into half of the limit.
    """
    most_line_bytes = line_limit(memory_bytes)
    share = ReadingShare(MemoryBudget(memory_bytes))
    structured = [file for file in source.files if file.format not in TEXT_FORMATS]
    texts = [file for file in source.files if file.format in TEXT_FORMATS and file.bytes]
    sampled = _spread(texts)
    filled: list[str] = []  # files with rows
    most = max(1 << 16, min(_MOST_BYTES, _SAMPLE_BYTES // max(len(sampled), 1)))

    def look(file: SourceFile, most_line_bytes: int) -> pa.Schema:
        with read_errors(file.path):
            if file.format != "csv":
                filled.append(file.path)
            if file.format not in TEXT_FORMATS:
                return plain_schema(stored_file(file, source.store, share).schema())
            if file.format == "csv":
                csv = CsvFormat.of(source.options)
                text = first_lines(file, source.store, most, most_line_bytes, csv.encoding)
                if (text.partition(b"\n")[2] if csv.header else text).strip():
                    filled.append(file.path)
                return _csv_columns(file, text, csv, known)
            text = first_lines(file, source.store, most, most_line_bytes)
            return _json_columns(text, known)

    def quick_look(file: SourceFile) -> pa.Schema | None:
        try:
            return look(file, min(most_line_bytes, BLOCK_BYTES))
        except MemoryBudgetError:
            if file.format not in TEXT_FORMATS:
                raise
            return None

    with ThreadPoolExecutor(_THREADS) as pool:
        looked = list(pool.map(quick_look, [*structured, *sampled]))
    schemas = [
        schema if schema is not None else look(file, most_line_bytes)
        for file, schema in zip([*structured, *sampled], looked, strict=True)
    ]
    unguessed = one_schema(schemas, "the files' columns")
    of_text = {name for each in schemas[len(structured) :] for name in each.names}
    schema = pa.schema(
        [
            each.with_type(_as_text(each.type)) if each.name in of_text else each
            for each in unguessed
        ]
    )
    if known.fills and any(f.format == "json" for f in texts):
        schema = _with_columns_of_table(schema, known)
    if not schema.names:
        raise _no_columns(source, sampled, most_line_bytes)
    if known.is_new and schema != unguessed and not filled:
        raise _no_rows(texts[0])
    return schema


def _with_columns_of_table(schema: pa.Schema, known: KnownTypes) -> pa.Schema:
    """The columns, and those of the table that later lines may have."""
    names = set(schema.names)
    for field in known.table or ():
        kind = known.type_of(field.name, nested=True)
        if field.name not in names and kind is not None:
            schema = schema.append(pa.field(field.name, kind))
    return schema


def _no_columns(
    source: FileSource, sampled: Sequence[SourceFile], most_line_bytes: int
) -> SourceError:
    """Why no file has columns."""
    for file in sampled:
        if file.format != "json":
            continue
        with read_errors(file.path):
            text = first_lines(file, source.store, 1, most_line_bytes)
            try:
                check_objects(text)
            except pa.ArrowInvalid as error:
                return SourceError(
                    f"{redact(file.path)!r} can't be read: {error}. Give it one object on each "
                    "line, or an array of objects"
                )
    names = [repr(redact(file.path)) for file in source.files]
    many = "" if len(names) == 1 else f" (and {len(names) - 1} other files)"
    return SourceError(
        f"{names[0] if names else 'the source'}{many} has no columns: exclude empty files"
    )


def _no_rows(file: SourceFile) -> SourceError:
    return SourceError(
        f"{redact(file.path)!r} has a header and no rows, which do not show the types of a new "
        "table's columns: give schema= the types of all columns, or load a file with rows first"
    )


def partition_columns(source: FileSource, known: KnownTypes) -> PartitionColumns:
    """The columns in the names of folders, with known or guessed types."""
    return PartitionColumns.of(
        (file.partitions for file in source.files),
        lambda name: known.type_of(name, nested=False),
    )


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The same columns in types that both engines have: no dictionaries, no short integers."""
    fields = [pa.field(each.name, plain_type(each.type), True) for each in schema]
    return pa.schema(fields)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The nearest Iceberg type that holds every value without loss."""
    kind = plain(kind)
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return kind
    if types.is_struct(kind):
        return pa.struct([pa.field(f.name, plain_type(f.type), True) for f in kind])
    if types.is_map(kind):
        value = pa.field("value", plain_type(kind.item_type), True)
        return pa.map_(plain_type(kind.key_type), value)
    if is_list(kind):
        return pa.list_(pa.field("element", plain_type(kind.value_type), True))
    if types.is_integer(kind):
        small = kind.bit_width < 32 or types.is_int32(kind)
        return pa.int32() if small else pa.int64()
    if types.is_float16(kind):
        return pa.float32()
    if types.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale) if kind.precision <= 38 else kind
    return text_type(kind)


def text_type(kind: pa.DataType) -> pa.DataType:
    """The type with microseconds and 32-bit offsets."""
    types = pa.types
    if types.is_timestamp(kind) and kind.unit in ("s", "ms"):
        return pa.timestamp("us", kind.tz)
    if types.is_time(kind):
        return pa.time64("us") if kind != pa.time64("ns") else kind
    if types.is_date64(kind):
        return pa.date32()
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_large_list(kind) or types.is_list(kind):
        return pa.list_(pa.field("element", text_type(kind.value_type), True))
    if types.is_struct(kind):
        return pa.struct([pa.field(f.name, text_type(f.type), True) for f in kind])
    return kind


def _csv_columns(file: SourceFile, text: bytes, csv: CsvFormat, known: KnownTypes) -> pa.Schema:
    csv = fitted_csv(csv, text, file.path)
    names = csv.names(text.partition(b"\n")[0], path=file.path)
    types = {name: known.type_of(name, nested=False) for name in names}
    if all(types.values()):
        return pa.schema(list(types.items()))
    body = text.partition(b"\n")[2] if csv.header else text
    looks = _csv_guess(body, csv, names)
    return pa.schema([(name, kind or looks.get(name, pa.null())) for name, kind in types.items()])


def _csv_guess(text: bytes, csv: CsvFormat, names: Sequence[str]) -> dict[str, pa.DataType]:
    """Guess the types of columns; lines that do not fit are skipped."""
    if not text.strip():
        return {}
    parse = csv.parse_options()
    parse.invalid_row_handler = lambda row: "skip"
    read = pacsv.ReadOptions(column_names=list(names), use_threads=False, block_size=len(text) + 1)
    try:
        table = pacsv.read_csv(
            pa.BufferReader(text),
            read_options=read,
            parse_options=parse,
            convert_options=csv.convert_options(),
        )
    except pa.ArrowException:
        return {}
    return {each.name: _guessed(each.type) for each in table.schema}


def _json_columns(text: bytes, known: KnownTypes) -> pa.Schema:
    looks = _json_guess(text)
    fields = []
    for field in looks:
        kind = known.type_of(field.name, nested=True)
        fields.append(pa.field(field.name, kind or _guessed(field.type)))
    return pa.schema(fields)


def _json_guess(text: bytes) -> pa.Schema:
    """Guess the types of objects; only the lines before a bad one may count."""
    while text.strip():
        try:
            check_objects(text)
            read = pajson.ReadOptions(use_threads=False, block_size=len(text) + 1)
            return pajson.read_json(pa.BufferReader(text), read_options=read).schema
        except pa.ArrowException:
            lines = text.split(b"\n")
            text = b"\n".join(lines[: len(lines) // 2])
            if len(lines) < 2:
                break
    return pa.schema([])


def _guessed(kind: pa.DataType) -> pa.DataType:
    """A column's type from its guessed type; text that is not UTF-8 is read as text, too."""
    types = pa.types
    if types.is_binary(kind):
        return pa.string()
    if types.is_struct(kind):
        return pa.struct([pa.field(f.name, _guessed(f.type), True) for f in kind])
    if is_list(kind):
        return pa.list_(pa.field("element", _guessed(kind.value_type), True))
    return text_type(kind)


def _as_text(kind: pa.DataType) -> pa.DataType:
    """The type, with text for values that are null in all samples."""
    types = pa.types
    if types.is_null(kind):
        return pa.string()
    if types.is_struct(kind):
        return pa.struct([pa.field(f.name, _as_text(f.type), True) for f in kind])
    if is_list(kind):
        return pa.list_(pa.field("element", _as_text(kind.value_type), True))
    return kind


def are_all_looked_at(source: FileSource) -> bool:
    """Whether `columns_of` finds every column that the files have."""
    is_json = any(file.format == "json" for file in source.files)
    return not is_json and len(source.files) <= _MOST_SAMPLES


def _spread(files: Sequence[SourceFile]) -> list[SourceFile]:
    """A sample of the files that is quick to read; it has the first and the last file."""
    if len(files) <= _MOST_SAMPLES:
        return list(files)
    last = len(files) - 1
    return [files[number * last // (_MOST_SAMPLES - 1)] for number in range(_MOST_SAMPLES)]
