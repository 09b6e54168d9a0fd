"""Peak memory, in fresh processes: a few batches, whatever the size of the data (S1.5, S2.7)."""

from __future__ import annotations

import pytest

import icestream as ice
from tests.memory import measured_scan
from tests.memory.conftest import measured
from tests.support.process import run_in_fresh_process

_MB = 1_000_000
# What a scan may take beside the bytes it accounts for: metadata, threads, freed pages.
_BESIDE_BYTES = 64 * _MB


@pytest.mark.parametrize("rows", [500_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "shape", ["events_parquet", pytest.param("events_orc", marks=pytest.mark.slow)]
)
def test_streaming_takes_less_than_a_tenth_of_the_table(shapes, shape, rows):  # S1.5
    place = shapes.place(shape, rows)
    whole_bytes = shapes.table(place).scan().to_arrow().nbytes
    report = measured(place, batch_size=1_000, order=ice.ArrivalOrder(1))
    assert report.result["rows"] == rows
    assert report.result["largest_batch_rows"] <= 1_000
    assert report.max_arrow_pool_bytes / whole_bytes < 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "size", "ten_times"),
    [
        pytest.param("one_row_group", (24,), (240,), id="row group"),
        pytest.param("one_orc_file", (24,), (240,), id="orc", marks=pytest.mark.soak),
        pytest.param("files", (20, 4, 50_000, 50_000), (200, 4, 50_000, 50_000), id="files"),
        pytest.param("deletes", (6,), (60,), id="deletes", marks=pytest.mark.soak),
    ],
)
def test_ten_times_the_data_takes_the_same_memory(shapes, shape, size, ten_times):
    one, ten = (measured(shapes.place(shape, *each), memory="16MB") for each in (size, ten_times))
    assert ten.result["rows"] == 10 * one.result["rows"]
    assert ten.max_arrow_pool_bytes <= 1.2 * one.max_arrow_pool_bytes
    assert ten.max_arrow_pool_bytes <= 16 * _MB
    # Beside its own bytes, a process has what its libraries happen to keep.
    assert ten.peak_rss_growth_bytes <= 1.2 * one.peak_rss_growth_bytes + 8 * _MB


def test_millions_of_deleted_positions_of_one_file_are_read_in_the_limit(shapes):
    """As integers they would take 24 MB, and twice that to sort them."""
    limit_bytes = 32 * _MB
    report = measured(shapes.place("deleted_half", 6_000_000), memory=limit_bytes)
    assert report.result["rows"] == 3_000_000
    assert report.peak_rss_growth_bytes <= limit_bytes + _BESIDE_BYTES


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"transform": measured_scan.wide},
        {"transform": "SELECT *, repeat('x', 500) AS text FROM batch"},
        {"mask": {}},  # of all columns
    ],
    ids=["function", "sql", "hash"],
)
def test_masks_and_transforms_stay_in_the_limit(shapes, options):
    limit_bytes = 64 * _MB
    place = shapes.place("events_parquet", 500_000)
    names = shapes.table(place).schema().column_names
    if "mask" in options:
        options = {"mask": dict.fromkeys(names, "hash")}
    report = measured(place, memory=limit_bytes, **options)
    assert report.result["rows"] == 500_000
    assert report.result["peak_bytes_held"] <= limit_bytes
    assert report.peak_rss_growth_bytes <= limit_bytes + _BESIDE_BYTES


@pytest.mark.slow
def test_footers_of_files_that_were_read_are_let_go(shapes):
    """Files of 200 columns and 10 row groups: a footer takes 2 MB as Arrow holds it."""
    limit_bytes = 32 * _MB
    report = measured(shapes.place("files", 100, 200, 40, 4), memory=limit_bytes)
    assert report.result["rows"] == 100 * 40
    assert report.peak_rss_growth_bytes <= limit_bytes + _BESIDE_BYTES


_SHAPES = {
    "narrow": ("narrow",),
    "wide": ("wide",),
    "nested": ("nested",),
    "deletes": ("deletes", 60),
    "texts": ("texts",),
    "row group": ("one_row_group", 240),
    "orc": ("one_orc_file", 240),
}


_LATER = ("nested", "deletes", "texts", "row group", "orc")


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(shape, id=name, marks=pytest.mark.slow if name in _LATER else ())
        for name, shape in _SHAPES.items()
    ],
)
def test_the_limit_holds_for_every_shape(shapes, shape):
    _assert_limit_holds(shapes.place(*shape), 64 * _MB, ice.TaskOrder())


@pytest.mark.parametrize("shape", ["narrow", pytest.param("wide", marks=pytest.mark.slow)])
def test_the_limit_holds_with_many_streams(shapes, shape):
    _assert_limit_holds(shapes.place(shape), 128 * _MB, ice.ArrivalOrder(8))


@pytest.mark.parametrize("allocator", ["mimalloc", pytest.param("system", marks=pytest.mark.slow)])
def test_the_limit_holds_with_any_allocator(shapes, allocator):  # S6.2
    """mimalloc is what PyArrow takes when it is imported before icestream."""
    report = run_in_fresh_process(
        measured_scan.stream,
        shapes.place("nested"),
        {"memory": 64 * _MB},
        env={"ARROW_DEFAULT_MEMORY_POOL": allocator},
    )
    assert report.result["finished"]
    assert report.result["allocator"] == allocator
    assert report.peak_rss_growth_bytes <= 64 * _MB + _BESIDE_BYTES


@pytest.mark.soak
@pytest.mark.parametrize("megabytes", [64, 128, 256])
@pytest.mark.parametrize(
    "order", [ice.TaskOrder(), ice.ArrivalOrder(1), ice.ArrivalOrder(8)], ids=repr
)
@pytest.mark.parametrize("shape", _SHAPES.values(), ids=_SHAPES.keys())
def test_the_limit_holds_for_every_shape_order_and_size(shapes, shape, order, megabytes):
    _assert_limit_holds(shapes.place(*shape), megabytes * _MB, order)


@pytest.mark.soak
@pytest.mark.parametrize("rows", [2_000_000, 10_000_000])
@pytest.mark.parametrize("shape", ["events_parquet", "events_orc"])
def test_streaming_a_large_table_takes_less_than_a_tenth_of_it(shapes, shape, rows):  # S1.5
    test_streaming_takes_less_than_a_tenth_of_the_table(shapes, shape, rows)


def _assert_limit_holds(place, limit_bytes: int, order: ice.TaskOrder | ice.ArrivalOrder) -> None:
    report = measured(place, memory=limit_bytes, order=order)
    assert report.result["peak_bytes_held"] <= limit_bytes
    assert report.max_arrow_pool_bytes <= limit_bytes
    assert report.peak_rss_growth_bytes <= limit_bytes + _BESIDE_BYTES
