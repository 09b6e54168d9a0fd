"""PyIceberg's file access by PyArrow, imported without `pyarrow.dataset`.

PyIceberg's module imports `pyarrow.dataset` for its own scans, and PyArrow then imports pandas.
Together they take 48 MB of memory and 0.25 s of CPU time in each process. icestream has its own
scans, so `pyarrow.dataset` is imported only when code of PyIceberg first uses it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pyarrow

_DATASET = "pyarrow.dataset"


class _Later(ModuleType):
    """Takes the place of a module, and imports it when one of its names is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system looks for these
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:  # another thread has imported the placeholder
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def _datasets_later() -> Iterator[None]:
    if _DATASET in sys.modules:
        yield
        return
    # Another thread that imports the module meanwhile gets the placeholder, also from the package.
    placeholder = sys.modules[_DATASET] = pyarrow.dataset = _Later(_DATASET)
    try:
        yield
    finally:
        if sys.modules.get(_DATASET) is placeholder:
            del sys.modules[_DATASET]  # other code imports the real module


with _datasets_later():
    from pyiceberg.io.pyarrow import (
        BUFFER_SIZE,
        MetricModeTypes,
        MetricsMode,
        PyArrowFile,
        PyArrowFileIO,
        StatisticsCollector,
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        match_metrics_mode,
        parquet_path_to_id_mapping,
        schema_to_pyarrow,
    )

__all__ = [
    "BUFFER_SIZE",
    "MetricModeTypes",
    "MetricsMode",
    "PyArrowFile",
    "PyArrowFileIO",
    "StatisticsCollector",
    "compute_statistics_plan",
    "data_file_statistics_from_parquet_metadata",
    "match_metrics_mode",
    "parquet_path_to_id_mapping",
    "schema_to_pyarrow",
]
