"""Spans and metrics never fail the work that they describe."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from opentelemetry import trace

from icestream.report import telemetry
from icestream.report.telemetry import Observation, measure, observe


class _Broken:
    """A part of an SDK of which every call fails."""

    def __getattr__(self, name: str) -> Any:
        def fail(*_: object, **__: object) -> Any:
            raise RuntimeError("the exporter is gone")

        return fail


def _broken_api() -> Any:
    instruments = dict.fromkeys(("iceberg.scan.rows", "iceberg.scan.duration"), _Broken())
    api = telemetry._Api(trace, _Broken(), instruments)
    return mock.patch.object(telemetry, "_api", return_value=api)


def test_a_span_ends_once() -> None:
    span = Observation()
    assert span.end()
    assert not span.end(ValueError("late"))


def test_without_an_api_nothing_is_recorded() -> None:
    with mock.patch.object(telemetry, "_api", return_value=None):
        span = observe("iceberg.scan", {"iceberg.table": "db.t"})
        assert not span.recording
        with span.current():
            span.note({"iceberg.scan.rows": 1})
        measure({"iceberg.scan.rows": 1}, {})
        assert span.end()


def test_an_sdk_that_fails_is_ignored() -> None:
    with _broken_api():
        span = observe("iceberg.scan", {"iceberg.table": "db.t"})
        span._span = _Broken()
        with span.current():
            span.note({"iceberg.scan.rows": 1})
        measure({"iceberg.scan.rows": 1, "iceberg.scan.duration": 0.5}, {})
        assert span.end(ValueError("secret"))


def test_an_error_inside_a_span_is_raised_as_it_is() -> None:
    with _broken_api():
        span = observe("iceberg.scan", {})
        span._span = _Broken()
        with pytest.raises(ValueError, match="ours"), span.current():
            raise ValueError("ours")
