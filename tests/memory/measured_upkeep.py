"""Upkeep for a measured process. icestream comes first: it chooses Arrow's allocator."""

from __future__ import annotations

import icestream as ice  # isort: skip
import icestream.operations.upkeep.compact  # isort: skip  # Imports are not measured.
import icestream.operations.upkeep.health  # isort: skip
import icestream.operations.upkeep.orphans  # isort: skip

from pathlib import Path
from typing import Any

from tests.support.catalogs import make_catalog


def compact(directory: str, memory: str, target_file_bytes: int) -> dict[str, Any]:
    """Compact the table `db.t`."""
    catalog = make_catalog(Path(directory))
    table = catalog.load_table("db.t")
    report = ice.compact(table, memory=memory, target_file_bytes=target_file_bytes)
    catalog.close()
    return report.to_dict()


def orphans(directory: str, memory: str = "64MB") -> dict[str, Any]:
    """Look for orphans of the table `db.t`."""
    catalog = make_catalog(Path(directory))
    report = ice.orphans(catalog.load_table("db.t"), older_than=0, memory=memory)
    catalog.close()
    return {"count": report.count, "files_referenced": report.files_referenced}


def health(directory: str, memory: str = "64MB") -> dict[str, Any]:
    """Look at the health of the table `db.t`."""
    catalog = make_catalog(Path(directory))
    report = ice.health(catalog.load_table("db.t"), memory=memory)
    catalog.close()
    return {"files": report.files, "partitions": report.partitions}
