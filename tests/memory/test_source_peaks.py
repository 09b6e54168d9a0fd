"""Parquet, ORC and Arrow files are loaded, or refused, inside the limit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from tests.memory import measured_load
from tests.support.process import run_in_fresh_process

_MB = 1_000_000
_LIMIT = 32 * _MB


def long_texts(rows: int) -> pa.Table:
    """One text of 500 kB, repeated: a file of some kB."""
    return pa.table({"id": range(rows), "text": ["x" * 500_000] * rows})


def coded_texts(rows: int) -> pa.Table:
    """The same as a dictionary."""
    codes = pa.array(np.zeros(rows, np.int32))
    texts = pa.DictionaryArray.from_arrays(codes, pa.array(["x" * 500_000]))
    return pa.table({"id": range(rows), "text": texts})


def numbers(rows: int, columns: int) -> pa.Table:
    """Columns of numbers that do not repeat."""
    random = np.random.default_rng(1)
    return pa.table({f"c{n}": random.integers(0, 2**62, rows) for n in range(columns)})


def _parquet(rows: pa.Table, path: Path) -> None:
    pq.write_table(rows, path)


def _plain_parquet(rows: pa.Table, path: Path) -> None:
    pq.write_table(rows, path, use_dictionary=False)


def _one_row_groups(rows: pa.Table, path: Path) -> None:
    pq.write_table(rows, path, row_group_size=1)


def _orc(rows: pa.Table, path: Path) -> None:
    orc.write_table(rows, path, compression="zlib")


def _arrow(rows: pa.Table, path: Path, *, stream: bool = False, codec: str | None = None) -> None:
    options = pa.ipc.IpcWriteOptions(compression=codec)
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(path, rows.schema, options=options) as file:
        file.write_table(rows)


def _loaded(folder: Path, name: str, key: str | None = None) -> tuple[str, int]:
    """What became of it; fails if the process grew by more than its limit and 64 MB."""
    report = run_in_fresh_process(
        measured_load.load_stored, str(folder), name, _LIMIT, key, timeout_seconds=300
    )
    assert report.peak_rss_growth_bytes <= _LIMIT + 64 * _MB, report.result
    outcome: tuple[str, int] = report.result
    return outcome


@pytest.mark.parametrize("key", [None, "id"])
def test_a_long_text_that_repeats_in_a_parquet_file_is_loaded(
    tmp_path: Path, key: str | None
) -> None:
    _parquet(long_texts(400), tmp_path / "a.parquet")
    assert _loaded(tmp_path, "a.parquet", key) == ("loaded", 400)


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, "id"])
def test_a_gigabyte_of_one_text_in_a_parquet_file_is_loaded(
    tmp_path: Path, key: str | None
) -> None:
    _parquet(long_texts(2_000), tmp_path / "a.parquet")
    assert _loaded(tmp_path, "a.parquet", key) == ("loaded", 2_000)


@pytest.mark.parametrize(
    ("rows", "write"),
    [
        pytest.param(numbers(2_000, 1_500), _plain_parquet, id="columns"),
        pytest.param(numbers(8_000, 10), _one_row_groups, id="row groups"),
    ],
)
@pytest.mark.parametrize("key", [None, "c0"])
def test_a_parquet_file_that_does_not_fit_is_refused_before_it_is_decoded(
    tmp_path: Path, rows: pa.Table, write: Callable[[pa.Table, Path], None], key: str | None
) -> None:
    write(rows, tmp_path / "a.parquet")
    text, needed = _loaded(tmp_path, "a.parquet", key)
    assert "a.parquet" in text
    assert needed > _LIMIT


@pytest.mark.slow
def test_a_long_text_that_repeats_in_an_orc_file_is_loaded(tmp_path: Path) -> None:
    _orc(long_texts(400), tmp_path / "a.orc")
    assert _loaded(tmp_path, "a.orc") == ("loaded", 400)


@pytest.mark.parametrize("stream", [False, True])
def test_a_dictionary_of_long_texts_in_an_arrow_file_is_loaded(
    tmp_path: Path, stream: bool
) -> None:
    _arrow(coded_texts(400), tmp_path / "a.arrow", stream=stream)
    assert _loaded(tmp_path, "a.arrow") == ("loaded", 400)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("codec", [None, "lz4"])
def test_an_arrow_batch_that_does_not_fit_is_refused_before_it_is_read(
    tmp_path: Path, stream: bool, codec: str | None
) -> None:
    _arrow(long_texts(400), tmp_path / "a.arrow", stream=stream, codec=codec)
    text, needed = _loaded(tmp_path, "a.arrow")
    assert "a.arrow" in text
    assert "smaller batches" in text
    assert needed > 200 * _MB


def test_a_stream_with_a_dictionary_of_long_texts_is_merged(tmp_path: Path) -> None:
    report = run_in_fresh_process(measured_load.merge_coded, str(tmp_path), 400, _LIMIT)
    assert report.result == 400
    assert report.peak_rss_growth_bytes <= _LIMIT + 64 * _MB
