"""A catalog, the same one as another process has it, and a real SDK of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.support.tables import make_catalog
from tests.support.telemetry import Seen


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path)
    yield catalog
    catalog.close()


@pytest.fixture
def other(tmp_path: Path, catalog: SqlCatalog) -> Iterator[SqlCatalog]:
    """The same catalog, for what others do meanwhile."""
    other = make_catalog(tmp_path)
    yield other
    other.close()


@pytest.fixture(scope="session")
def sdk() -> Iterator[Seen]:
    """The process has one provider; an application sets it once."""
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider([reader], shutdown_on_exit=False)
    trace.set_tracer_provider(tracers)
    metrics.set_meter_provider(meters)
    yield Seen(exporter, reader, tracers)
    tracers.shutdown()
    meters.shutdown()


@pytest.fixture
def seen(sdk: Seen) -> Seen:
    """The same, without what was seen before."""
    sdk.forget()
    return sdk
