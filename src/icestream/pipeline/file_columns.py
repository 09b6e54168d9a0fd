"""Which columns files have, and of which types: decided once, before anything is loaded.

Parquet, ORC and Arrow files say it themselves. Of text, a column's type is what the caller says,
what the table has, or what it looks like in the first lines of some files; so it is the same for
all files and on every engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson

from icestream.errors import MemoryBudgetError, SchemaMismatchError, SourceError
from icestream.pipeline.file_rows import opened_file, said
from icestream.pipeline.file_store import FileStore
from icestream.pipeline.source_file import TEXT_FORMATS, FileSource, SourceFile
from icestream.pipeline.text_format import CsvFormat, check_objects
from icestream.pipeline.text_lines import BLOCK_BYTES, MOST_LINE_BYTES, first_lines
from icestream.write.hive_partition import PartitionColumns
from icestream.write.source_files import is_readable_text
from icestream.write.types import is_list, plain

_THREADS = 8
_MOST_SAMPLES = 64
_SAMPLE_BYTES = 16 << 20
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class KnownTypes:
    """What is known of columns before files are looked at.

    Attributes:
        told: By the caller.
        table: The table's columns, if there is one.
        fills: Whether columns that are not seen in the first lines of JSON may come later: all of
            the table's are read then. A merge would take them for nulls.
    """

    told: pa.Schema | None = None
    table: pa.Schema | None = None
    fills: bool = True

    def type_of(self, name: str, *, nested: bool) -> pa.DataType | None:
        """The type in which text is read; None: as it looks."""
        for known in (self.told, self.table):
            if known is None or (index := known.get_field_index(name)) < 0:
                continue
            kind = known.field(index).type
            if is_readable_text(kind, nested):
                return text_type(kind)
            return None if nested and pa.types.is_nested(kind) else pa.string()
        return None


def columns_of(
    source: FileSource, known: KnownTypes, most_line_bytes: int = MOST_LINE_BYTES
) -> pa.Schema:
    """The columns of all files together.

    Raises:
        SourceError: If a file can't be read.
        SchemaMismatchError: If files do not go together.
        MemoryBudgetError: If a line of text is too long for the limit.

    Memory: about 1 MB of each of 8 files; of files with longer lines, one file at a time.
    """
    structured = [file for file in source.files if file.format not in TEXT_FORMATS]
    texts = [file for file in source.files if file.format in TEXT_FORMATS and file.bytes]
    sampled = _spread(texts)
    most = max(1 << 16, min(_MOST_BYTES, _SAMPLE_BYTES // max(len(sampled), 1)))

    def look(file: SourceFile, most_line_bytes: int) -> pa.Schema:
        with said(file):
            if file.format not in TEXT_FORMATS:
                return stored_schema(file, source.store)
            text = first_lines(file, source.store, most, most_line_bytes)
            if file.format == "csv":
                return _csv_columns(file, text, CsvFormat.of(source.options), known)
            return _json_columns(text, known)

    def quick_look(file: SourceFile) -> pa.Schema | None:
        try:
            return look(file, min(most_line_bytes, BLOCK_BYTES))
        except MemoryBudgetError:
            return None

    with ThreadPoolExecutor(_THREADS) as pool:
        looked = list(pool.map(quick_look, [*structured, *sampled]))
    schemas = [
        found if found is not None else look(file, most_line_bytes)
        for file, found in zip([*structured, *sampled], looked, strict=True)
    ]
    names = [file.path for file in [*structured, *sampled]]
    schema = one_schema(schemas, "the files' columns")
    if known.fills and known.table is not None and any(f.format == "json" for f in texts):
        seen = set(schema.names)
        for field in known.table:
            kind = known.type_of(field.name, nested=True)
            if field.name not in seen and kind is not None:
                schema = schema.append(pa.field(field.name, kind))
    if not schema.names:
        raise SourceError(
            f"{', '.join(map(repr, names[:3])) or 'the files'} have no column: leave empty files "
            "out"
        )
    return schema


def partition_columns(source: FileSource, known: KnownTypes) -> PartitionColumns:
    """The columns that folders of files hold: of the types that are known, or as they look."""
    return PartitionColumns.of(
        (file.partitions for file in source.files),
        lambda name: known.type_of(name, nested=False),
    )


def one_schema(schemas: Sequence[pa.Schema], what: str) -> pa.Schema:
    """The union of columns, by name; where types differ the wider one counts.

    Raises:
        SchemaMismatchError: If two types of a column do not go together.
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


def stored_schema(file: SourceFile, store: FileStore) -> pa.Schema:
    """The schema that a file says it has, in plain types.

    Raises:
        SourceError: If it can't be read.
    """
    with opened_file(file, store) as (schema, _):
        return plain_schema(schema)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The same columns in types that both engines have: no dictionaries, no short numbers."""
    fields = [pa.field(each.name, plain_type(each.type), True) for each in schema]
    return pa.schema(fields)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The nearest type that Iceberg has, without any loss."""
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
    if types.is_large_list(kind):
        return pa.list_(pa.field("element", text_type(kind.value_type), True))
    if types.is_list(kind):
        return pa.list_(pa.field("element", text_type(kind.value_type), True))
    if types.is_struct(kind):
        return pa.struct([pa.field(f.name, text_type(f.type), True) for f in kind])
    return kind


def _csv_columns(file: SourceFile, text: bytes, csv: CsvFormat, known: KnownTypes) -> pa.Schema:
    names = csv.names(text.partition(b"\n")[0], path=file.path)
    types = {name: known.type_of(name, nested=False) for name in names}
    if all(types.values()):
        return pa.schema(list(types.items()))
    body = text.partition(b"\n")[2] if csv.header else text
    looks = _csv_guess(body, csv, names)
    return pa.schema([(name, kind or looks.get(name, pa.string())) for name, kind in types.items()])


def _csv_guess(text: bytes, csv: CsvFormat, names: Sequence[str]) -> dict[str, pa.DataType]:
    """What columns look like; lines that do not fit are passed over."""
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
    """What the objects look like; of a block with bad lines, the first that can be read count."""
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
    """A type for what was seen; nothing but nulls may be anything, so it is text."""
    types = pa.types
    if types.is_null(kind):
        return pa.string()
    if types.is_struct(kind):
        return pa.struct([pa.field(f.name, _guessed(f.type), True) for f in kind])
    if is_list(kind):
        return pa.list_(pa.field("element", _guessed(kind.value_type), True))
    return text_type(kind)


def _spread(files: Sequence[SourceFile]) -> list[SourceFile]:
    """So many of the files that looking at them takes no time; the first and the last too."""
    if len(files) <= _MOST_SAMPLES:
        return list(files)
    last = len(files) - 1
    return [files[number * last // (_MOST_SAMPLES - 1)] for number in range(_MOST_SAMPLES)]
