"""Files as a stream of Arrow batches."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from icestream.errors import InvalidArgumentError, SchemaMismatchError, SourceError
from icestream.write.sources.arrow_source import open_source
from icestream.write.sources.file_stream import SourceFiles

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", None]})


def _write(path: Path, rows: pa.Table = ROWS) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(rows, path)
    elif path.suffix == ".orc":
        pyarrow.orc.write_table(rows, path)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(path, rows.schema) as file:
            file.write_table(rows)
    elif path.suffix == ".arrows":
        with pa.ipc.new_stream(path, rows.schema) as stream:
            stream.write_table(rows)
    return path


def _read(source: SourceFiles) -> pa.Table:
    with open_source(source) as opened:
        return pa.Table.from_batches(list(opened), source.schema)


@pytest.mark.parametrize("suffix", [".parquet", ".orc", ".arrow", ".arrows"])
def test_binary_formats_are_read_by_their_names(tmp_path: Path, suffix: str) -> None:
    source = SourceFiles([_write(tmp_path / f"rows{suffix}")])
    assert _read(source).equals(ROWS)
    assert (source.files_read, source.rows_read, source.is_read) == (1, 3, True)
    assert source.bytes == source.paths[0].stat().st_size


def test_text_is_read_as_the_types_of_the_table(tmp_path: Path) -> None:
    types = pa.schema(
        [("id", pa.int32()), ("zip", pa.string()), ("day", pa.date32()), ("other", pa.int64())]
    )
    (tmp_path / "a.csv").write_text('id,zip,day\n1,00123,2026-11-16\n2,"",\n')
    read = _read(SourceFiles([tmp_path / "a.csv"], types=types))
    assert read.schema.names == ["id", "zip", "day"]
    assert read.schema.field("id").type == pa.int32()
    assert read["zip"].to_pylist() == ["00123", ""]
    (tmp_path / "a.json").write_text('{"id": 1, "day": "2026-11-16", "new": 1.5}\n')
    read = _read(SourceFiles([tmp_path / "a.json"], types=types))
    assert read.schema.names == ["id", "day", "new"], "no column that the file lacks"
    assert read.schema.field("day").type == pa.date32()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.timestamp("us", "UTC"), "2026-11-16T08:00:00Z"),
        (pa.timestamp("us"), "2026-11-16 08:00:00.5"),
        (pa.decimal128(9, 2), "1.50"),
        (pa.time64("us"), "01:02:03.000004"),
        (pa.struct([("day", pa.date32()), ("n", pa.int32())]), {"day": "2026-11-16", "n": 1}),
        (pa.list_(pa.date32()), ["2026-11-16"]),
    ],
    ids=str,
)
def test_json_has_every_type_that_text_can_say(
    tmp_path: Path, kind: pa.DataType, text: object
) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"value": text}) + "\n")
    read = _read(SourceFiles([tmp_path / "a.json"], types=pa.schema([("value", kind)])))
    assert read.schema.field("value").type == kind
    assert read["value"].null_count == 0


def test_what_is_empty_in_csv_is_null_and_what_is_quoted_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,b\n,""\n1,x\n')
    assert _read(SourceFiles([tmp_path / "a.csv"])).to_pylist() == [
        {"a": None, "b": ""},
        {"a": 1, "b": "x"},
    ]


def test_compressed_text_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"id\n1\n2\n"))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"id": 3}\n'))
    source = SourceFiles([tmp_path / "a.csv.gz", tmp_path / "b.jsonl.gz"])
    assert _read(source)["id"].to_pylist() == [1, 2, 3]


def test_folders_and_globs_are_taken_in_order(tmp_path: Path) -> None:
    for name in ("b", "a", "_hidden", ".hidden"):
        _write(tmp_path / f"{name}.parquet")
    (tmp_path / "readme.txt").write_text("not data")
    (tmp_path / "deep").mkdir()
    _write(tmp_path / "deep" / "c.parquet")
    everything = SourceFiles([tmp_path])
    assert [path.name for path in everything.paths] == ["a.parquet", "b.parquet", "c.parquet"]
    some = SourceFiles([str(tmp_path / "[ab].parquet")])
    assert [path.name for path in some.paths] == ["a.parquet", "b.parquet"]
    deep = SourceFiles([str(tmp_path / "**" / "c.parquet")])
    assert [path.name for path in deep.paths] == ["c.parquet"]


def test_files_with_other_columns_and_narrower_types_go_together(tmp_path: Path) -> None:
    _write(tmp_path / "a.parquet")
    narrow = pa.table({"id": pa.array([9], pa.int32()), "more": [True]})
    _write(tmp_path / "b.parquet", narrow)
    read = _read(SourceFiles([tmp_path])).to_pylist()
    assert read[0] == {"id": 1, "name": "a", "more": None}
    assert read[3] == {"id": 9, "name": None, "more": True}


def test_files_whose_types_do_not_go_together_are_refused(tmp_path: Path) -> None:
    _write(tmp_path / "a.parquet")
    _write(tmp_path / "b.parquet", pa.table({"id": [[1]]}))
    with pytest.raises(SchemaMismatchError, match="Load them in groups that agree"):
        SourceFiles([tmp_path])


def test_a_stream_of_many_batches_is_not_collected(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array(range(100_000), pa.int64())})
    _write(tmp_path / "a.parquet", rows)
    batches = [batch.num_rows for batch in SourceFiles([tmp_path / "a.parquet"])]
    assert sum(batches) == 100_000
    assert len(batches) > 5


def test_the_stream_is_an_arrow_stream_for_others(tmp_path: Path) -> None:
    source = SourceFiles([_write(tmp_path / "a.parquet")])
    assert pa.RecordBatchReader.from_stream(source).read_all().equals(ROWS)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.parquet", b"not parquet"),
        ("a.orc", b"not orc"),
        ("a.arrow", b"not arrow"),
        ("a.json", b"not json"),
        ("a.csv", b"a,b\n1,2,3\n"),
        ("a.csv.gz", b"not gzip"),
        ("empty.csv", b""),
    ],
)
def test_a_file_that_can_not_be_read_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=f"{name}'.* (can't be read|has no columns)"):
        list(SourceFiles([tmp_path / name]))


def test_a_file_that_breaks_off_later_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n" + "1\n" * 1_000_000 + "x\n")
    source = SourceFiles([path])
    with pytest.raises(SourceError, match=r"a\.csv', line 1000002, can't be read"):
        list(source)


def test_text_of_a_damaged_orc_file_is_not_handed_on(tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    pyarrow.orc.write_table(pa.table({"a": ["aaa", "something to read", "zzz"]}), path)
    whole = path.read_bytes()
    assert [row["a"] for batch in SourceFiles([path]) for row in batch.to_pylist()][1][0] == "s"
    path.write_bytes(whole.replace(b"something", b"\xf2omething"))
    with pytest.raises(SourceError, match=r"a\.orc' can't be read"):
        list(SourceFiles([path]))


def test_names_that_lead_nowhere_or_say_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no file is at"):
        SourceFiles([tmp_path / "nope.csv"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="has no files"):
        SourceFiles([tmp_path / "empty"])
    (tmp_path / "rows.dat").write_text("id\n1\n")
    with pytest.raises(SourceError, match="is text: give format='csv'"):
        SourceFiles([tmp_path / "rows.dat"])
    assert _read(SourceFiles([tmp_path / "rows.dat"], format="csv"))["id"].to_pylist() == [1]
    with pytest.raises(InvalidArgumentError, match="give one of parquet, csv"):
        SourceFiles([tmp_path / "rows.dat"], format="xml")  # type: ignore[arg-type]
