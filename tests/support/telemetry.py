"""What reached the exporters of OpenTelemetry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

_Point = tuple[tuple[str, Any], ...]


@dataclass
class Seen:
    """Spans and sums since `forget`.

    Attributes:
        exporter: Where finished spans go.
        reader: Where metrics go; they add up for ever.
        tracers: The application's provider.
    """

    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader
    tracers: TracerProvider
    _before: dict[str, dict[_Point, float]] = field(default_factory=dict)

    def forget(self) -> None:
        self.exporter.clear()
        self._before = self._totals()

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def span(self, name: str) -> dict[str, Any]:
        """The attributes of the only span of that name."""
        (found,) = self.spans(name)
        return dict(found.attributes or {})

    def metric(self, name: str, **attributes: str) -> float:
        """What was added to a metric; of a histogram, how many values there were."""
        wanted = {f"iceberg.{key.replace('__', '.')}": value for key, value in attributes.items()}
        before = self._before.get(name, {})
        return sum(
            value - before.get(point, 0)
            for point, value in self._totals().get(name, {}).items()
            if wanted.items() <= dict(point).items()
        )

    def _totals(self) -> dict[str, dict[_Point, float]]:
        data = self.reader.get_metrics_data()
        found: dict[str, dict[_Point, float]] = {}
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    found[metric.name] = {
                        tuple(sorted((p.attributes or {}).items())): (
                            p.count if hasattr(p, "count") else p.value  # type: ignore[union-attr]
                        )
                        for p in metric.data.data_points
                    }
        return found
