"""Whole results stay inside the limit, in fresh processes, whether they fit it or not."""

from __future__ import annotations

import pytest

from tests.memory import measured_results
from tests.support.process import run_in_fresh_process

_MB = 1_000_000
_BESIDE_BYTES = 64 * _MB


@pytest.mark.parametrize(
    "method",
    [
        "to_pandas",
        pytest.param("to_arrow", marks=pytest.mark.slow),
        pytest.param("to_polars", marks=pytest.mark.slow),
    ],
)
def test_a_result_is_refused_inside_the_limit_and_fits_the_one_that_is_named(shapes, method):
    place = shapes.place("events_parquet", 500_000)
    refused = run_in_fresh_process(measured_results.collect, place, method, 16 * _MB)
    assert refused.peak_rss_growth_bytes <= 16 * _MB + _BESIDE_BYTES
    enough = refused.result["needed_bytes"]
    complete = run_in_fresh_process(measured_results.collect, place, method, enough)
    assert complete.result == {"rows": 500_000}
    assert complete.peak_rss_growth_bytes <= enough + _BESIDE_BYTES
