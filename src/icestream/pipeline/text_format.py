"""Lines of CSV and JSON as Arrow batches: whole blocks at once, every line one record."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson

from icestream.errors import InvalidArgumentError, SourceError
from icestream.write.source_files import days_as_text, fit_batch

# A line that does not begin as an object, or goes on after one: Arrow would take several objects
# in a line, and breaks down over others. Text may look like that, too: then it is looked at again.
_SUSPICIOUS = re.compile(rb"^[ \t\r]*[^{\s]|\}[ \t]*[^\s,}\]]", re.MULTILINE)
_LINE = re.compile(rb"^\r*[^\r\n]", re.MULTILINE)  # one that is not empty
_OPTIONS = frozenset({"delimiter", "quote", "escape", "header", "columns", "nulls", "multiline"})


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """How CSV is written.

    Attributes:
        delimiter: Between values.
        quote: Around values; None: there are no quotes.
        escape: Before a character that has no meaning then.
        header: Whether the first line names the columns.
        columns: Their names, where there is no header; or instead of it.
        nulls: What stands for null, unless it is quoted.
        multiline: Whether values in quotes may have line breaks.
    """

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    header: bool = True
    columns: tuple[str, ...] | None = None
    nulls: tuple[str, ...] = ("",)
    multiline: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> CsvFormat:
        """As the options of a source say.

        Raises:
            InvalidArgumentError: If one of them can't be used.
        """
        told = {key: value for key, value in options.items() if key in _OPTIONS}
        for key in ("columns", "nulls"):
            if key in told:
                value = told[key]
                told[key] = (value,) if isinstance(value, str) else tuple(map(str, value))
        for key in ("header", "multiline"):
            told[key] = _flag(key, told.get(key, getattr(cls(), key)))
        for key in ("delimiter", "quote", "escape"):
            value = told.get(key)
            if value is not None and (not isinstance(value, str) or len(value.encode()) != 1):
                raise InvalidArgumentError(f"{key} is {value!r}: give one ASCII character")
        made = cls(**told)
        if not made.header and made.columns is None:
            raise InvalidArgumentError(
                "a CSV file without a header needs names for its columns: give the option "
                "columns, too, as in ['id', 'price']"
            )
        return made

    def parse_options(self) -> pacsv.ParseOptions:
        """As PyArrow takes them."""
        return pacsv.ParseOptions(
            delimiter=self.delimiter,
            quote_char=self.quote if self.quote is not None else False,
            escape_char=self.escape if self.escape is not None else False,
            newlines_in_values=self.multiline,
        )

    def convert_options(
        self, types: Mapping[str, pa.DataType] | None = None
    ) -> pacsv.ConvertOptions:
        """As PyArrow takes them."""
        return pacsv.ConvertOptions(
            column_types=dict(types or {}),
            null_values=list(self.nulls),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,  # "" is an empty text, nothing is null
        )

    def names(self, line: bytes, *, path: str) -> list[str]:
        """The names of a file's columns, by its first line or as told.

        Raises:
            SourceError: If they can't be read, or a name is there twice.
        """
        if self.columns is not None:
            return list(self.columns)
        try:
            names = self._header(line)
        except pa.ArrowException as error:
            raise SourceError(f"the header of {path!r} can't be read: {error}") from error
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled or not all(names):
            what = f"names {doubled[0]!r} twice" if doubled else "has a column without a name"
            raise SourceError(f"the header of {path!r} {what}: mend it, or give option columns")
        return names

    def _header(self, line: bytes) -> list[str]:
        read = pacsv.ReadOptions(autogenerate_column_names=True, use_threads=False)
        convert = pacsv.ConvertOptions(null_values=[], true_values=[], false_values=[])
        table = pacsv.read_csv(
            pa.BufferReader(line.rstrip(b"\r\n") + b"\n"),
            read_options=read,
            parse_options=self.parse_options(),
            convert_options=convert,
        )
        return [str(column[0].as_py()) for column in table.columns] if table.num_rows else []

    def quotes(self, text: bytes) -> int:
        """How many quotes open or close."""
        if self.quote is None:
            return 0
        if self.escape is not None:
            text = re.sub(re.escape(self.escape.encode()) + b".", b"", text, flags=re.DOTALL)
        return text.count(self.quote.encode())


@dataclass(slots=True)
class CsvParser:
    """Reads lines of CSV.

    Args:
        csv: How they are written.
        names: The columns of the file.
        schema: The columns that are wanted, with their types; those that the file lacks are null.
    """

    csv: CsvFormat
    names: Sequence[str]
    schema: pa.Schema
    _read: Any = field(init=False)
    _parse: Any = field(init=False)
    _convert: Any = field(init=False)

    def __post_init__(self) -> None:
        types = {each.name: each.type for each in self.schema}
        self._read = pacsv.ReadOptions(column_names=list(self.names), use_threads=False)
        self._parse = self.csv.parse_options()
        self._convert = self.csv.convert_options(types)

    def __call__(self, text: bytes) -> pa.RecordBatch:
        if self.csv.quotes(text) % 2:
            raise pa.ArrowInvalid(
                "a quote is not closed on its line: if values have line breaks, set the option "
                "multiline"
            )
        self._read.block_size = len(text) + 1
        table = pacsv.read_csv(
            pa.BufferReader(text),
            read_options=self._read,
            parse_options=self._parse,
            convert_options=self._convert,
        )
        _check_rows(table.num_rows, text)
        return fit_batch(_one_batch(table), self.schema)


@dataclass(slots=True)
class JsonParser:
    """Reads lines of JSON, each an object.

    Args:
        schema: The columns that are wanted, with their types. Objects without them have nulls;
            objects with others are bad.
    """

    schema: pa.Schema
    _parse: Any = field(init=False)

    def __post_init__(self) -> None:
        # Dates and times it takes for numbers: they are read as text, and cast.
        read_as = pa.schema([(each.name, days_as_text(each.type)) for each in self.schema])
        self._parse = pajson.ParseOptions(
            explicit_schema=read_as, unexpected_field_behavior="error"
        )

    def __call__(self, text: bytes) -> pa.RecordBatch:
        check_objects(text)
        table = pajson.read_json(
            pa.BufferReader(text),
            read_options=pajson.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=self._parse,
        )
        _check_rows(table.num_rows, text)
        return fit_batch(_one_batch(table), self.schema)


def check_objects(text: bytes) -> None:
    """Refuse lines that are not one object each.

    Raises:
        pa.ArrowInvalid: If there is one.
    """
    if not _SUSPICIOUS.search(text):
        return
    for line in text.split(b"\n"):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:  # UnicodeDecodeError is one
            raise pa.ArrowInvalid(f"it is no JSON: {error}") from error
        except RecursionError as error:
            raise pa.ArrowInvalid("its JSON is nested too deeply") from error
        if not isinstance(value, dict):
            raise pa.ArrowInvalid("it is no JSON object")


def _check_rows(rows: int, text: bytes) -> None:
    lines = sum(1 for _ in _LINE.finditer(text))
    if rows != lines:
        raise pa.ArrowInvalid(f"{lines} lines have {rows} records: a record is to be one line")


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=table.schema)
    return batches[0]


def _flag(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise InvalidArgumentError(f"{name} is {value!r}: give true or false")
