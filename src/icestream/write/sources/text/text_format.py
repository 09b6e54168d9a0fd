"""Records of CSV and JSON, parsed in blocks as Arrow batches."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson

from icestream.errors import InvalidArgumentError, SourceError
from icestream.write.sources.batch_columns import days_as_text, fit_batch

# A line that does not begin with an object, or goes on after one. Arrow would read several objects
# of a line, and crashes on some others. A match inside a string is harmless: the line is parsed.
_SUSPICIOUS = re.compile(rb"^[ \t\r]*[^{\s]|\}[ \t]*[^\s,}\]]", re.MULTILINE)
_LINE = re.compile(rb"^\r*[^\r\n]", re.MULTILINE)  # a line that is not empty
CSV_OPTIONS = (
    "delimiter", "quote", "escape", "header", "columns", "nulls", "multiline", "encoding",
)  # fmt: skip
_UTF8 = "utf-8"


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """The syntax of CSV files.

    Attributes:
        delimiter: Separates values; None to go by the first line of each file.
        quote: Encloses values; None if quotes have no meaning.
        escape: Makes the next character literal.
        header: Whether the first line names the columns.
        columns: Names of the columns, for files without a header or instead of it.
        nulls: Unquoted values that are null.
        multiline: Whether quoted values may contain line breaks; None to go by the first lines of
            each file.
        encoding: The encoding of the files.
    """

    delimiter: str | None = None
    quote: str | None = '"'
    escape: str | None = None
    header: bool = True
    columns: tuple[str, ...] | None = None
    nulls: tuple[str, ...] = ("",)
    multiline: bool | None = None
    encoding: str = _UTF8

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> CsvFormat:
        """The syntax that a source's options describe.

        Raises:
            InvalidArgumentError: If an option has an invalid value.
        """
        values = {key: value for key, value in options.items() if key in CSV_OPTIONS}
        for key in ("columns", "nulls"):
            if key in values:
                value = values[key]
                values[key] = (value,) if isinstance(value, str) else tuple(map(str, value))
        for key in ("header", "multiline"):
            if key in values:
                values[key] = _flag(key, values[key])
        if "encoding" in values:
            values["encoding"] = _encoding(values["encoding"])
        for key in ("delimiter", "quote", "escape"):
            value = values.get(key)
            if value is not None and (not isinstance(value, str) or len(value.encode()) != 1):
                raise InvalidArgumentError(f"{key} is {value!r}: give one ASCII character")
        csv = cls(**values)
        if not csv.header and csv.columns is None:
            raise InvalidArgumentError(
                "a CSV file without a header needs names for its columns: give the option "
                "columns, too, as in ['id', 'price']"
            )
        return csv

    @property
    def can_be_cut(self) -> bool:
        """Whether a file may be read in parts: not if a line break need not end a record."""
        return self.multiline is not True and self.encoding == _UTF8

    def parse_options(self) -> pacsv.ParseOptions:
        """The syntax as PyArrow's options."""
        return pacsv.ParseOptions(
            delimiter=self.delimiter or ",",
            quote_char=self.quote if self.quote is not None else False,
            escape_char=self.escape if self.escape is not None else False,
            newlines_in_values=bool(self.multiline),
        )

    def convert_options(
        self, types: Mapping[str, pa.DataType] | None = None
    ) -> pacsv.ConvertOptions:
        """The types and null values as PyArrow's options."""
        return pacsv.ConvertOptions(
            column_types=dict(types or {}),
            null_values=list(self.nulls),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,  # "" is an empty string, no text is null
        )

    def names(self, line: bytes, *, path: str) -> list[str]:
        """The names of a file's columns: option `columns`, or its first line.

        Raises:
            SourceError: If the line can't be read, or has a name twice.
        """
        if self.columns is not None:
            return list(self.columns)
        try:
            line.decode()
            names = self.values(line)
        except UnicodeDecodeError as error:
            raise SourceError(
                f"the header of {path!r} is not valid UTF-8: give the file's encoding, such as "
                "option encoding='latin-1'"
            ) from error
        except pa.ArrowException as error:
            raise SourceError(f"the header of {path!r} can't be read: {error}") from error
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled or not all(names):
            what = f"names {doubled[0]!r} twice" if doubled else "has a column without a name"
            raise SourceError(f"the header of {path!r} {what}: fix it, or give option columns")
        return names

    def values(self, line: bytes) -> list[str]:
        """The values of a line as text."""
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
        """Number of quotes that open or close a value."""
        if self.quote is None:
            return 0
        if self.escape is not None:
            text = re.sub(re.escape(self.escape.encode()) + b".", b"", text, flags=re.DOTALL)
        return text.count(self.quote.encode())


@dataclass(slots=True)
class CsvParser:
    """Parses lines of CSV.

    Args:
        csv: Their syntax.
        names: The columns of the file.
        schema: The columns of the batches. A column that the file lacks is null.
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
                "a quote is not closed"
                if self.csv.multiline
                else "a quote is not closed on its line: if values have line breaks, give option "
                "multiline='true'"
            )
        self._read.block_size = len(text) + 1
        table = pacsv.read_csv(
            pa.BufferReader(text),
            read_options=self._read,
            parse_options=self._parse,
            convert_options=self._convert,
        )
        if not self.csv.multiline:
            _check_rows(table.num_rows, text)
        return fit_batch(_one_batch(table), self.schema)


@dataclass(slots=True)
class JsonParser:
    """Parses lines of JSON; each is an object.

    Args:
        schema: The columns of the batches. A field that an object lacks is null; an object with
            other fields is bad.
    """

    schema: pa.Schema
    _parse: Any = field(init=False)

    def __post_init__(self) -> None:
        # Arrow's reader takes dates and times for numbers: they are read as text, and cast.
        read_as = pa.schema([(each.name, days_as_text(each.type)) for each in self.schema])
        self._parse = pajson.ParseOptions(
            explicit_schema=read_as, unexpected_field_behavior="error"
        )

    def __call__(self, text: bytes) -> pa.RecordBatch:
        _check_utf8(text)  # Arrow's reader of JSON does not.
        check_objects(text)
        table = pajson.read_json(
            pa.BufferReader(text),
            read_options=pajson.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=self._parse,
        )
        _check_rows(table.num_rows, text)
        return fit_batch(_one_batch(table), self.schema)


def check_objects(text: bytes) -> None:
    """Check that each line is one object.

    Raises:
        pa.ArrowInvalid: If a line is not.
    """
    if not _SUSPICIOUS.search(text):
        return
    for line in text.split(b"\n"):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:  # UnicodeDecodeError is one
            raise pa.ArrowInvalid(f"it is not valid JSON: {error}") from error
        except RecursionError as error:
            raise pa.ArrowInvalid("its JSON is nested too deeply") from error
        if not isinstance(value, dict):
            raise pa.ArrowInvalid("it is not a JSON object")


def _check_utf8(text: bytes) -> None:
    if text.isascii():
        return
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid("invalid UTF8 data") from error


def _check_rows(rows: int, text: bytes) -> None:
    lines = sum(1 for _ in _LINE.finditer(text))
    if rows != lines:
        raise pa.ArrowInvalid(f"{lines} lines have {rows} records: a record must be one line")


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


def _encoding(value: object) -> str:
    try:
        return codecs.lookup(str(value)).name
    except (LookupError, ValueError) as error:
        raise InvalidArgumentError(
            f"encoding is {value!r}: give one that Python knows, such as 'latin-1', 'cp1252' or "
            "'utf-16'"
        ) from error
