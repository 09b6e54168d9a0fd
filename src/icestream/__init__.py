"""Read and write Apache Iceberg tables from Python within a memory limit that you set.

```python
import icestream as ice

for batch in ice.scan(table, where="price > 10", memory="64MB"):
    ...  # pa.RecordBatch
```

Importing this module is fast: PyArrow and PyIceberg are imported on first use.

The import also selects jemalloc as Arrow's allocator, unless PyArrow is already imported or you set
`ARROW_DEFAULT_MEMORY_POOL`. Decoding page by page allocates and frees many small buffers. jemalloc
is configured to return freed pages soon (`JE_ARROW_MALLOC_CONF`), which keeps the size of the
process close to the bytes in use.
"""

import logging as _logging
import os as _os
import sys as _sys
from importlib import import_module as _import_module
from types import FunctionType as _FunctionType
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from icestream.memory.machine import allocator_variables as _allocator_variables
from icestream.report.version import __version__

# The application decides where log lines go. Without this handler, warnings would go to stderr.
_logging.getLogger("icestream").addHandler(_logging.NullHandler())

if "pyarrow" not in _sys.modules:
    for _name, _value in _allocator_variables().items():
        _os.environ.setdefault(_name, _value)

if _TYPE_CHECKING:
    from icestream.errors import (
        CatalogError,
        ChecksFailedError,
        CommitConflictError,
        CommitError,
        CommitUnknownError,
        CorruptFileError,
        CredentialsExpiredError,
        DuplicateKeysError,
        FileMissingError,
        IcestreamError,
        InvalidArgumentError,
        InvalidDataError,
        MemoryBudgetError,
        MissingExtraError,
        ProjectionError,
        ReadError,
        RunFailedError,
        ScanClosedError,
        SchemaMismatchError,
        SourceError,
        StreamError,
        TaskFailedError,
        TransientReadError,
        UnknownColumnError,
        UnsupportedFeatureError,
        WriteError,
        WriterClosedError,
    )
    from icestream.integrations.pyiceberg_tables.arrow_scan import ArrowScan
    from icestream.integrations.pyiceberg_tables.catalog import load_catalog
    from icestream.integrations.pyiceberg_tables.table import table
    from icestream.memory.budget import MemoryBudget
    from icestream.operations.append import append
    from icestream.operations.commit_files import commit_files
    from icestream.operations.delete import delete
    from icestream.operations.merge.merge import merge
    from icestream.operations.overwrite import overwrite
    from icestream.operations.upkeep.compact import compact
    from icestream.operations.upkeep.health import health
    from icestream.operations.upkeep.orphans import orphans
    from icestream.operations.write_files import write_files, write_target
    from icestream.pipeline.load import load
    from icestream.pipeline.load_plan import LoadPlan
    from icestream.pipeline.reports.load_progress import LoadProgress
    from icestream.pipeline.reports.load_report import LoadReport
    from icestream.pipeline.reports.run_report import RunPlan, RunReport
    from icestream.pipeline.run import run
    from icestream.read.order import ArrivalOrder, TaskOrder
    from icestream.read.scan import Scan, read_splits, scan
    from icestream.read.split import Split
    from icestream.report.scan_report import ScanExplanation, ScanReport
    from icestream.report.upkeep_report import (
        CompactReport,
        HealthReport,
        OrphanFile,
        OrphansReport,
        PartitionHealth,
        SizeBucket,
    )
    from icestream.report.write_report import MergeReport, WriteReport
    from icestream.write.new_file import NewFile
    from icestream.write.target import WriteTarget


_HOMES = {
    "icestream.operations.append": ("append",),
    "icestream.operations.commit_files": ("commit_files",),
    "icestream.operations.delete": ("delete",),
    "icestream.operations.overwrite": ("overwrite",),
    "icestream.operations.write_files": ("write_files", "write_target"),
    "icestream.integrations.pyiceberg_tables.arrow_scan": ("ArrowScan",),
    "icestream.integrations.pyiceberg_tables.catalog": ("load_catalog",),
    "icestream.integrations.pyiceberg_tables.table": ("table",),
    "icestream.memory.budget": ("MemoryBudget",),
    "icestream.pipeline.load": ("load",),
    "icestream.pipeline.load_plan": ("LoadPlan",),
    "icestream.pipeline.reports.load_progress": ("LoadProgress",),
    "icestream.pipeline.reports.load_report": ("LoadReport",),
    "icestream.pipeline.run": ("run",),
    "icestream.pipeline.reports.run_report": ("RunPlan", "RunReport"),
    "icestream.read.order": ("ArrivalOrder", "TaskOrder"),
    "icestream.read.scan": ("Scan", "read_splits", "scan"),
    "icestream.read.split": ("Split",),
    "icestream.report.scan_report": ("ScanExplanation", "ScanReport"),
    "icestream.report.upkeep_report": (
        "CompactReport",
        "HealthReport",
        "OrphanFile",
        "OrphansReport",
        "PartitionHealth",
        "SizeBucket",
    ),
    "icestream.report.write_report": ("MergeReport", "WriteReport"),
    "icestream.operations.upkeep.compact": ("compact",),
    "icestream.operations.upkeep.health": ("health",),
    "icestream.operations.upkeep.orphans": ("orphans",),
    "icestream.operations.merge.merge": ("merge",),
    "icestream.write.new_file": ("NewFile",),
    "icestream.write.target": ("WriteTarget",),
}

__all__ = [
    "ArrivalOrder",
    "ArrowScan",
    "CatalogError",
    "ChecksFailedError",
    "CommitConflictError",
    "CommitError",
    "CommitUnknownError",
    "CompactReport",
    "CorruptFileError",
    "CredentialsExpiredError",
    "DuplicateKeysError",
    "FileMissingError",
    "HealthReport",
    "IcestreamError",
    "InvalidArgumentError",
    "InvalidDataError",
    "LoadPlan",
    "LoadProgress",
    "LoadReport",
    "MemoryBudget",
    "MemoryBudgetError",
    "MergeReport",
    "MissingExtraError",
    "NewFile",
    "OrphanFile",
    "OrphansReport",
    "PartitionHealth",
    "ProjectionError",
    "ReadError",
    "RunFailedError",
    "RunPlan",
    "RunReport",
    "Scan",
    "ScanClosedError",
    "ScanExplanation",
    "ScanReport",
    "SchemaMismatchError",
    "SizeBucket",
    "SourceError",
    "Split",
    "StreamError",
    "TaskFailedError",
    "TaskOrder",
    "TransientReadError",
    "UnknownColumnError",
    "UnsupportedFeatureError",
    "WriteError",
    "WriteReport",
    "WriteTarget",
    "WriterClosedError",
    "__version__",
    "append",
    "commit_files",
    "compact",
    "delete",
    "health",
    "load",
    "load_catalog",
    "merge",
    "orphans",
    "overwrite",
    "read_splits",
    "run",
    "scan",
    "table",
    "write_files",
    "write_target",
]

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_HOME_OF |= {name: "icestream.errors" for name in __all__ if name.endswith("Error")}


def __getattr__(name: str) -> _Any:
    if name == "ray":  # a module, like `icestream.spark`
        return _import_module("icestream.integrations.ray")
    from icestream.report.other_names import no_such_function, with_known_arguments

    if name not in _HOME_OF:
        raise AttributeError(no_such_function(name, __all__))
    value = getattr(_import_module(_HOME_OF[name]), name)
    if isinstance(value, _FunctionType):
        value = with_known_arguments(value, __name__)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
