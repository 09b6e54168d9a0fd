"""Sinks: every format ends once, complete or stopped."""

from __future__ import annotations

import io
import json

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icestream.cli.output.output_file import Output
from icestream.cli.output.sinks import format_of, open_sink
from icestream.memory.budget import MemoryBudget

_BATCH = pa.record_batch({"id": [1, 2], "text": ["a", None], "list": [[1], []]})


def _written(format: str, *, batches: int = 1, is_pipe: bool = False) -> bytes:
    content, budget = io.BytesIO(), MemoryBudget("1MB")
    sink = open_sink(format, Output(content), _BATCH.schema, budget=budget, is_pipe=is_pipe)  # type: ignore[arg-type]
    for _ in range(batches):
        sink.write(_BATCH)
    sink.close(lambda: {"rows": batches * _BATCH.num_rows})
    assert budget.held_bytes == 0
    return content.getvalue()


def test_binary_formats_hold_the_batches() -> None:
    rows = pa.Table.from_batches([_BATCH, _BATCH])
    assert pq.read_table(io.BytesIO(_written("parquet", batches=2))).equals(rows)
    assert pa.ipc.open_file(_written("arrow", batches=2)).read_all().equals(rows)
    stream = _written("arrow", batches=2, is_pipe=True)
    assert pa.ipc.open_stream(stream).read_all().equals(rows)


def test_text_formats_hold_the_rows() -> None:
    assert _written("csv").decode().splitlines() == [
        '"id","text","list"',
        '1,"a","[1]"',
        '2,,"[]"',
    ]
    lines = _written("json").decode().splitlines()
    assert [json.loads(line) for line in lines] == _BATCH.to_pylist()
    assert _written("text").decode().splitlines() == [
        "id  text  list",
        " 1  a     [1]",
        " 2  NULL  []",
    ]


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_a_document_is_json_with_any_number_of_batches(batches: int) -> None:
    document = json.loads(_written("document", batches=batches))
    assert document == {"rows": _BATCH.to_pylist() * batches, "report": {"rows": 2 * batches}}


@pytest.mark.parametrize("format", ["parquet", "arrow", "csv", "json", "document", "text"])
def test_an_aborted_sink_writes_no_more_and_holds_no_memory(format: str) -> None:
    content, budget = io.BytesIO(), MemoryBudget("1MB")
    file = Output(content)
    sink = open_sink(format, file, _BATCH.schema, budget=budget, is_pipe=False)  # type: ignore[arg-type]
    sink.write(_BATCH)
    before = content.getvalue()
    file.stop()
    sink.abort()
    assert content.getvalue() == before
    assert budget.held_bytes == 0


def test_the_suffix_of_a_file_says_its_format() -> None:
    assert format_of("rows.parquet") == "parquet"
    with pytest.raises(click.UsageError, match="or pass --format"):
        format_of("rows.xyz")
