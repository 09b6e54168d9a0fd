"""Spans and metrics through OpenTelemetry's API, if that is installed.

```
span iceberg.scan      one pass over a scan, until it ends, fails, is closed or is garbage-collected
span iceberg.load      an append, overwrite, delete or merge; contains the spans of its commits
span iceberg.commit    one change, with all attempts to commit it
```

`pip install 'icestream[telemetry]'` installs the API. The application decides where spans go.
Telemetry never raises. It sends no values of the user's data: filters are sent without values, and
errors only as their type.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from threading import Lock
from types import ModuleType
from typing import Any

Value = str | int | float | bool

_log = logging.getLogger(__name__)
_SCOPE = "icestream"
# Bucket boundaries in seconds: a commit takes 20 ms on SQLite, a scan may take an hour.
_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0)
_COUNTERS = {
    "iceberg.scan.rows": ("{row}", "Rows that scans delivered"),
    "iceberg.scan.bytes": ("By", "Arrow bytes that scans delivered"),
    "iceberg.scan.files": ("{file}", "Data files that scans opened"),
    "iceberg.scan.retries": ("{retry}", "Reads that were repeated"),
    "iceberg.commit.attempts": ("{attempt}", "Attempts to commit"),
    "iceberg.commit.retries": ("{attempt}", "Attempts after the first"),
    "iceberg.commit.conflicts": ("{attempt}", "Attempts that conflicted with another commit"),
    "iceberg.commit.rows": ("{row}", "Rows that commits inserted, updated or deleted"),
    "iceberg.commit.bytes": ("By", "The size in storage of files that commits added"),
    "iceberg.commit.files_added": ("{file}", "Data files that commits added"),
    "iceberg.commit.files_removed": ("{file}", "Data files that commits removed"),
}
_DURATIONS = {
    "iceberg.scan.duration": "Time from the first request for a batch to the end",
    "iceberg.scan.time_to_first_batch": "Time from the first request for a batch to its arrival",
    "iceberg.commit.duration": "Time from the first attempt to the outcome of the commit",
}


@dataclass(frozen=True, slots=True)
class _Api:
    """The parts of OpenTelemetry that are used."""

    trace: ModuleType
    tracer: Any
    instruments: Mapping[str, Any]


def _api() -> _Api | None:
    """OpenTelemetry's API; None if the application has not imported it.

    An application that exports spans or metrics has imported the API. Without it, importing would
    only take time.
    """
    return _imported_api() if "opentelemetry" in sys.modules else None


@cache
def _imported_api() -> _Api | None:
    try:
        from opentelemetry import metrics, trace

        meter = metrics.get_meter(_SCOPE)
        instruments: dict[str, Any] = {
            name: meter.create_counter(name, unit=unit, description=text)
            for name, (unit, text) in _COUNTERS.items()
        }
        for name, text in _DURATIONS.items():
            instruments[name] = meter.create_histogram(
                name, unit="s", description=text, explicit_bucket_boundaries_advisory=_SECONDS
            )
        return _Api(trace, trace.get_tracer(_SCOPE), instruments)
    except ModuleNotFoundError:
        return None
    except Exception as error:
        _log.debug("no telemetry: OpenTelemetry's API can't be used: %s", error)
        return None


@dataclass(slots=True)
class Observation:
    """One span, which ends once. Without OpenTelemetry it does nothing."""

    _api: _Api | None = None
    _span: Any = None
    _ended: Lock = field(default_factory=Lock)

    @property
    def recording(self) -> bool:
        """Whether an exporter records the attributes."""
        return self._span is not None and bool(_quietly(self._span.is_recording))

    def note(self, attributes: Mapping[str, Value | None]) -> None:
        """Set attributes. Skips those that are None."""
        if self.recording:
            known = {name: value for name, value in attributes.items() if value is not None}
            _quietly(lambda: self._span.set_attributes(known))

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make this span the parent of spans that begin inside the `with` block."""
        if self._api is None or self._span is None:
            yield
            return
        manager = self._api.trace.use_span(
            self._span, record_exception=False, set_status_on_exception=False
        )
        entered = _quietly(lambda: (manager.__enter__(),)) is not None
        try:
            yield
        finally:
            if entered:
                _quietly(lambda: manager.__exit__(None, None, None))

    def end(self, error: BaseException | None = None) -> bool:
        """End the span. Returns False if it had ended before. An error is recorded as its type."""
        if not self._ended.acquire(blocking=False):
            return False
        if self._span is not None:
            if error is not None:
                _quietly(lambda: self._mark(type(error).__name__))
            _quietly(self._span.end)
        return True

    def _mark(self, kind: str) -> None:
        assert self._api is not None
        trace = self._api.trace
        self._span.set_attribute("error.type", kind)
        self._span.set_status(trace.Status(trace.StatusCode.ERROR, kind))


def observe(name: str, attributes: Mapping[str, Value | None]) -> Observation:
    """Begin a span inside the current one."""
    api = _api()
    if api is None:
        return Observation()
    known = {key: value for key, value in attributes.items() if value is not None}
    return Observation(api, _quietly(lambda: api.tracer.start_span(name, attributes=known)))


def measure(values: Mapping[str, float | None], attributes: Mapping[str, Value]) -> None:
    """Add values to the metrics of those names. Skips values that are None."""
    api = _api()
    if api is None:
        return
    for name, value in values.items():
        if value is None:
            continue
        instrument = api.instruments[name]
        record = instrument.record if name in _DURATIONS else instrument.add
        _quietly(partial(record, value, attributes))


def _quietly(action: Callable[[], Any]) -> Any:
    """Call an SDK or exporter. Its failure must not fail a scan or a commit."""
    try:
        return action()
    except Exception as error:
        _log.debug("telemetry failed: %s: %s", type(error).__name__, error)
        return None
