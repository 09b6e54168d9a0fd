"""What a file of text really holds: refuses other content, and finds the syntax of CSV."""

from __future__ import annotations

import re
from dataclasses import replace

import pyarrow as pa
import pyarrow.csv as pacsv

from icestream.catalogs.redaction import redact
from icestream.errors import SourceError
from icestream.write.sources.formats import compression_of
from icestream.write.sources.text.text_format import CsvFormat

_DELIMITERS = (";", "\t", "|")
HEAD_BYTES = 1 << 16
"""The part of a file that shows its delimiter, and whether values have line breaks."""

_SHOWN_BYTES = 1024
_PAGE = re.compile(rb"\s*<(\?xml|!doctype|html)", re.IGNORECASE)
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
# The first bytes of files that are not text: what they are, and what to do.
_BINARY = (
    (b"PAR1", "a Parquet file", "load it with format='parquet'"),
    (b"ORC", "an ORC file", "load it with format='orc'"),
    (b"ARROW1", "an Arrow file", "load it with format='arrow'"),
    (b"Obj\x01", "an Avro file", "load it with format='avro' and engine='spark'"),
    (b"SQLite format 3\0", "a SQLite database", "load it as 'sqlite:///{path}?table=NAME'"),
    (b"PK\x03\x04", "an Excel workbook or a ZIP archive", "save the sheet as CSV, or unpack it"),
    (b"\xd0\xcf\x11\xe0", "an Excel workbook", "save the sheet as CSV"),
    (b"\x1f\x8b", "compressed with gzip", "rename it, so that its name ends with .gz"),
    (b"BZh", "compressed with bzip2", "rename it, so that its name ends with .bz2"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "rename it, so that its name ends with .zst"),
    (b"%PDF", "a PDF document", "save its tables as CSV"),
)


def check_text(path: str, text: bytes, *, is_csv: bool) -> None:
    """Refuse a file that is not UTF-8 text, by its first bytes.

    Raises:
        SourceError: If it is something else. The message says what, and what to do.
    """
    name, what, advice = repr(redact(path)), None, ""
    known = next(((w, a) for start, w, a in _BINARY if text.startswith(start)), None)
    if known is not None and not (known[0] == "an ORC file" and _is_plain(text)):
        what, advice = known
    elif _PAGE.match(text):
        what, advice = "an HTML or XML document", "download the file again, or convert it to CSV"
    elif text.startswith(_UTF16) or _has_zeros(text):
        what = "not UTF-8 but probably UTF-16"
        advice = "give option encoding='utf-16'" if is_csv else "convert it to UTF-8"
    if what is not None:
        if compression_of(path) is not None and "rename" in advice:
            advice = "decompress it once"
        raise SourceError(f"{name} is {what}: {advice.format(path=redact(path))}")


def fitted_csv(csv: CsvFormat, head: bytes, path: str) -> CsvFormat:
    """The syntax of a file, with the delimiter and the line breaks that its first lines show.

    Options that the caller gave are kept. The delimiter is a comma unless the first line has none,
    and has semicolons, tabs or bars instead.

    Args:
        csv: The options.
        head: Whole lines from the beginning of the file.
        path: Its path.
    """
    if csv.delimiter is None:
        csv = replace(csv, delimiter=_delimiter(csv, head.partition(b"\n")[0], path))
    if csv.multiline is None:
        head = head[: head.find(b"\n", HEAD_BYTES - 1) + 1 or None]
        csv = replace(csv, multiline=_has_line_breaks(csv, head))
    return csv


def _delimiter(csv: CsvFormat, line: bytes, path: str) -> str:
    if re.search(r"\.tsv(\.\w+)?$", path.lower()):
        return "\t"
    counts = {each: _columns(replace(csv, delimiter=each), line) for each in (",", *_DELIMITERS)}
    if csv.columns is not None:
        fits = [each for each, count in counts.items() if count == len(csv.columns)]
        return fits[0] if fits else ","
    if counts[","] > 1:
        return ","
    best = max(_DELIMITERS, key=lambda each: counts[each])
    return best if counts[best] > 1 else ","


def _columns(csv: CsvFormat, line: bytes) -> int:
    """Number of values in a line; 0 if it can't be parsed."""
    try:
        return len(csv.values(line))
    except pa.ArrowException:
        return 0


def _has_line_breaks(csv: CsvFormat, head: bytes) -> bool:
    """Whether a value in quotes continues on the next line, and the whole is one record."""
    if csv.quotes(head) == 0:
        return False
    lines = head.split(b"\n")
    columns = len(csv.columns or ()) or _columns(csv, lines[0])
    for number, line in enumerate(lines):
        if csv.quotes(line) % 2 == 0:
            continue
        record = line
        for following in lines[number + 1 :]:
            record += b"\n" + following
            if csv.quotes(record) % 2 == 0:
                return _is_record(csv, record, columns)
        return False
    return False


def _is_record(csv: CsvFormat, text: bytes, columns: int) -> bool:
    read = pacsv.ReadOptions(autogenerate_column_names=True, use_threads=False)
    try:
        table = pacsv.read_csv(
            pa.BufferReader(text + b"\n"),
            read_options=read,
            parse_options=replace(csv, multiline=True).parse_options(),
        )
    except pa.ArrowException:
        return False
    return bool(table.num_rows == 1 and table.num_columns == columns)


def _is_plain(text: bytes) -> bool:
    """Whether text that begins like a binary file is a line of a text file: `ORCHARD,PRICE`."""
    return b"\0" not in text[:_SHOWN_BYTES]


def _has_zeros(text: bytes) -> bool:
    start = text[:_SHOWN_BYTES]
    return start.count(b"\0") * 4 > len(start)
