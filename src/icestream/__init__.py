"""Apache Iceberg from Python, inside a memory limit that you set.

```python
import icestream as ice

for batch in ice.scan(table, where="price > 10", memory="64MB"):
    ...  # pa.RecordBatch
```

Importing this module is cheap: PyArrow and PyIceberg are imported with the first name that needs
them.

It also makes jemalloc Arrow's allocator, provided that PyArrow has not been imported yet and that
`ARROW_DEFAULT_MEMORY_POOL` (Arrow's own setting, which wins) is not set: decoding page by page
frees and allocates small buffers all the time, and jemalloc is the one that keeps the process near
the bytes in use, once it is told (`JE_ARROW_MALLOC_CONF`) to give freed pages back soon.
"""

import logging as _logging
import os as _os
import sys as _sys
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from icestream.machine import allocator_variables as _allocator_variables

# The application decides where log lines go. Without this, warnings would go to stderr.
_logging.getLogger("icestream").addHandler(_logging.NullHandler())

if "pyarrow" not in _sys.modules:
    for _name, _value in _allocator_variables().items():
        _os.environ.setdefault(_name, _value)

if _TYPE_CHECKING:
    from icestream.commit.append import append
    from icestream.commit.commit_files import commit_files
    from icestream.commit.delete import delete
    from icestream.commit.overwrite import overwrite
    from icestream.commit.write_files import write_files, write_target
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
    from icestream.memory import MemoryBudget
    from icestream.pipeline.load import load
    from icestream.pipeline.load_plan import LoadPlan
    from icestream.pipeline.load_progress import LoadProgress
    from icestream.pipeline.load_report import LoadReport
    from icestream.pipeline.run import run
    from icestream.pipeline.run_report import RunPlan, RunReport
    from icestream.read.order import ArrivalOrder, TaskOrder
    from icestream.read.scan import Scan, read_splits, scan
    from icestream.read.split import Split
    from icestream.report import (
        CompactReport,
        HealthReport,
        MergeReport,
        OrphanFile,
        OrphansReport,
        PartitionHealth,
        ScanExplanation,
        ScanReport,
        SizeBucket,
        WriteReport,
    )
    from icestream.upkeep.compact import compact
    from icestream.upkeep.health import health
    from icestream.upkeep.orphans import orphans
    from icestream.upsert.merge import merge
    from icestream.write.new_file import NewFile
    from icestream.write.target import WriteTarget

__version__ = "0.1.0.dev0"

_HOMES = {
    "icestream.commit.append": ("append",),
    "icestream.commit.commit_files": ("commit_files",),
    "icestream.commit.delete": ("delete",),
    "icestream.commit.overwrite": ("overwrite",),
    "icestream.commit.write_files": ("write_files", "write_target"),
    "icestream.errors": (
        "CatalogError",
        "ChecksFailedError",
        "CommitConflictError",
        "CommitError",
        "CommitUnknownError",
        "CorruptFileError",
        "CredentialsExpiredError",
        "DuplicateKeysError",
        "FileMissingError",
        "IcestreamError",
        "InvalidArgumentError",
        "InvalidDataError",
        "MemoryBudgetError",
        "MissingExtraError",
        "ProjectionError",
        "ReadError",
        "RunFailedError",
        "ScanClosedError",
        "SchemaMismatchError",
        "SourceError",
        "StreamError",
        "TaskFailedError",
        "TransientReadError",
        "UnknownColumnError",
        "UnsupportedFeatureError",
        "WriteError",
        "WriterClosedError",
    ),
    "icestream.memory": ("MemoryBudget",),
    "icestream.pipeline.load": ("load",),
    "icestream.pipeline.load_plan": ("LoadPlan",),
    "icestream.pipeline.load_progress": ("LoadProgress",),
    "icestream.pipeline.load_report": ("LoadReport",),
    "icestream.pipeline.run": ("run",),
    "icestream.pipeline.run_report": ("RunPlan", "RunReport"),
    "icestream.read.order": ("ArrivalOrder", "TaskOrder"),
    "icestream.read.scan": ("Scan", "read_splits", "scan"),
    "icestream.read.split": ("Split",),
    "icestream.report": (
        "CompactReport",
        "HealthReport",
        "MergeReport",
        "OrphanFile",
        "OrphansReport",
        "PartitionHealth",
        "ScanExplanation",
        "ScanReport",
        "SizeBucket",
        "WriteReport",
    ),
    "icestream.upkeep.compact": ("compact",),
    "icestream.upkeep.health": ("health",),
    "icestream.upkeep.orphans": ("orphans",),
    "icestream.upsert.merge": ("merge",),
    "icestream.write.new_file": ("NewFile",),
    "icestream.write.target": ("WriteTarget",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ArrivalOrder",
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
    "merge",
    "orphans",
    "overwrite",
    "read_splits",
    "run",
    "scan",
    "write_files",
    "write_target",
]


def __getattr__(name: str) -> _Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'icestream' has no attribute {name!r}")
    value = getattr(_import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
