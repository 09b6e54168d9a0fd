"""What a text file really holds, and the syntax that its first lines show."""

from __future__ import annotations

import gzip

import pytest

from icestream.errors import SourceError
from icestream.write.sources.text.text_content import check_text, fitted_csv
from icestream.write.sources.text.text_format import CsvFormat


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"PK\x03\x04rest", "an Excel workbook or a ZIP archive: save the sheet as CSV"),
        (gzip.compress(b"id\n1\n", mtime=0), "compressed with gzip: rename it"),
        (b"PAR1....", "a Parquet file: load it with format='parquet'"),
        (b"SQLite format 3\0....", "load it as 'sqlite:///x.csv[?]table=NAME'"),
        (b" <!DOCTYPE html>", "an HTML or XML document"),
        ("id,a\n1,2\n".encode("utf-16"), "give option encoding='utf-16'"),
        ("id,a\n1,2\n".encode("utf-16-le"), "give option encoding='utf-16'"),
    ],
)
def test_a_file_that_is_not_text_is_named_for_what_it_is(text: bytes, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        check_text("x.csv", text, is_csv=True)


@pytest.mark.parametrize("text", [b"ORCHARD,PRICE\n", b"<DATE>,<OPEN>\n", b"id\n\0\n" + b"1\n" * 9])
def test_text_that_only_looks_like_another_file_is_accepted(text: bytes) -> None:
    check_text("x.csv", text, is_csv=True)


@pytest.mark.parametrize(
    ("head", "delimiter"),
    [
        (b"id,price\n1,2\n", ","),
        (b"id;price\n1;2,5\n", ";"),
        (b"id\tprice\n", "\t"),
        (b"id|price\n", "|"),
        (b"id\n1;2\n", ","),
        (b"a;b,c\n", ","),
        (b'"a;b"\n', ","),
        (b'"a,b";c\n', ";"),
    ],
)
def test_the_first_line_shows_the_delimiter(head: bytes, delimiter: str) -> None:
    assert fitted_csv(CsvFormat(), head, "x.csv").delimiter == delimiter
    assert fitted_csv(CsvFormat(delimiter=","), head, "x.csv").delimiter == ","


def test_a_file_without_header_has_the_delimiter_that_gives_its_columns() -> None:
    csv = CsvFormat(header=False, columns=("id", "price"))
    assert fitted_csv(csv, b"1;2,5,5\n", "x.csv").delimiter == ";"
    assert fitted_csv(CsvFormat(), b"a,b\n", "x.tsv.gz").delimiter == "\t"


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b'id,name\n1,"a\nb"\n', True),
        (b'id,name\n1,"a"\n', False),
        (b'id,size\n1,5"\n2,6"\n', False),
        (b'id,name\n1,"a\n2,b\n', False),
        (b'id,"long\nname"\n1,2\n', False),
    ],
)
def test_a_record_over_several_lines_shows_that_values_have_line_breaks(
    head: bytes, expected: bool
) -> None:
    assert fitted_csv(CsvFormat(), head, "x.csv").multiline is expected
