"""Reports of loads, one JSON file each, in the state folder."""

from __future__ import annotations

import json
import logging
import resource
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from icestream.pipeline.load_report import LoadReport
from icestream.pipeline.state_folder import StateFolder, safe_name, write_json

_logger = logging.getLogger(__name__)


def store_report(report: LoadReport, state: StateFolder | None) -> LoadReport:
    """Store a report; a load that has committed does not fail because that is not possible.

    Returns:
        The report, with the file's name if it is stored.
    """
    if state is None:
        return report
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    name = f"{moment}Z-{safe_name(report.load)}-{uuid.uuid4().hex[:8]}.json"
    stored = replace(report, report_file=str(state.reports / name))
    try:
        write_json(state.reports / name, stored.to_dict())
    except OSError as error:
        _logger.warning("the report of %s could not be stored: %s", report.load, error)
        return report
    return stored


def newest_reports(state: StateFolder, load: str) -> Iterator[Mapping[str, Any]]:
    """The reports of a load of that name, newest first; those that can't be read are left out."""
    if not state.reports.is_dir():
        return
    for path in sorted(state.reports.glob(f"*-{safe_name(load)}-*.json"), reverse=True):
        document = _read(path)
        if document.get("load") == load:
            yield document


def peak_process_bytes() -> int:
    """The largest resident size of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _read(path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
