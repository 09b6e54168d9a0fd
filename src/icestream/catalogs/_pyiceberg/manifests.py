"""Manifests: exact partition values, metrics, and writers that report the first error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from struct import unpack
from typing import Protocol, TypeVar

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.reader import DoubleReader
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator, _StrictMetricsEvaluator
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestListWriter,
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.schema import Schema

_Writer = TypeVar("_Writer", ManifestWriter, ManifestListWriter)

_read_double = DoubleReader.read
_exact_users = 0
_exact_lock = threading.Lock()


def _read_double_exactly(_: DoubleReader, decoder: BinaryDecoder) -> float:
    value: float = unpack("<d", decoder.read(8))[0]
    return value


@contextmanager
def exact_manifests() -> Iterator[None]:
    """Make PyIceberg read the doubles in manifests, which are partition values, exactly.

    PyIceberg's decoder reads them as 32-bit floats: 0.1 becomes 0.10000000149. Inside the `with`
    block this changes the whole process, because PyIceberg's own threads read manifests.
    """
    global _exact_users
    with _exact_lock:
        _exact_users += 1
        DoubleReader.read = _read_double_exactly  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        with _exact_lock:
            _exact_users -= 1
            if not _exact_users:
                DoubleReader.read = _read_double  # type: ignore[method-assign]


class Metrics(Protocol):
    """The metrics that the evaluator reads, of a `DataFile` or of our row groups."""

    record_count: int
    value_counts: dict[int, int]
    null_value_counts: dict[int, int]
    nan_value_counts: dict[int, int]
    lower_bounds: dict[int, bytes]
    upper_bounds: dict[int, bytes]


def metrics_evaluator(
    schema: Schema,
    row_filter: BooleanExpression,
    case_sensitive: bool,
    *,
    include_empty_files: bool = False,
) -> Callable[[Metrics], bool]:
    """A function that returns whether rows with given metrics might match the filter."""
    evaluate: Callable[..., bool] = _InclusiveMetricsEvaluator(
        schema, row_filter, case_sensitive, include_empty_files
    ).eval
    return evaluate


def strict_metrics_evaluator(
    schema: Schema, row_filter: BooleanExpression
) -> Callable[[DataFile], bool]:
    """A function that returns whether the metrics of a file prove that all its rows match."""
    evaluate: Callable[[DataFile], bool] = _StrictMetricsEvaluator(schema, row_filter, True).eval
    return evaluate


class DeleteManifestWriter(ManifestWriterV2):
    """Writes a manifest of delete files. PyIceberg's own writers support only data files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


@contextmanager
def written(writer: _Writer) -> Iterator[_Writer]:
    """Open and close a manifest or a manifest list, and report the first error.

    PyIceberg's own `with` reports an empty manifest if the first entry could not be written, and an
    error on closing the file hides the error before it.
    """
    try:
        writer.__enter__()
        yield writer
        writer.__exit__(None, None, None)
    except BaseException:
        with suppress(Exception):
            writer._writer.output_stream.close()
        raise
