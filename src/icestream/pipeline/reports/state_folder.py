"""The folder for reports of loads, checkpoints and the state of runs."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from icestream.pipeline.reports.load_report import LoadReport

DEFAULT_FOLDER = "icestream_state"
VARIABLE = "ICESTREAM_STATE"
_logger = logging.getLogger(__name__)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class StateFolder:
    """Paths of reports and checkpoints below one folder, which is created when it is needed.

    Args:
        path: The folder; by default the value of `ICESTREAM_STATE`, or `./icestream_state`.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path or os.environ.get(VARIABLE) or DEFAULT_FOLDER).absolute()

    @property
    def reports(self) -> Path:
        """Folder of the reports."""
        return self.path / "reports"

    def checkpoint(self, name: str) -> Path:
        """Default folder of a load's checkpoint."""
        return self.path / "checkpoints" / safe_name(name)


@dataclass(slots=True)
class LoadState:
    """The state of one load of a run.

    Attributes:
        status: `"done"`, `"tests failed"`, or `"begun"` otherwise.
        load_id: The id that the load commits with; None before it starts.
        definition: Digest of the load's options when it started.
        inputs: Digest of its inputs when it started; None if they can't be compared.
        changes: Number of times options or inputs have changed during this run.
        fingerprint: Digest of the load's text in the file, for loads with tests.
        snapshot_id: The snapshot that the load committed.
        old_branches: Audit branches of abandoned runs, which the load must still drop.
        created_uuid: UUID of the table, if the load creates it before its tests.
        left_out: Source columns without a type, which the new table does not have.
    """

    status: Literal["begun", "done", "tests failed"] = "begun"
    load_id: str | None = None
    definition: str = ""
    inputs: str | None = None
    changes: int = 0
    fingerprint: str = ""
    snapshot_id: int | None = None
    old_branches: list[str] = field(default_factory=list)
    created_uuid: str | None = None
    left_out: list[str] = field(default_factory=list)


def safe_name(name: str) -> str:
    """The name as a valid part of a path."""
    return _UNSAFE.sub("_", name).strip(".") or "_"


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document atomically: readers see either the old file or the complete new one.

    The file is on disk when the function returns.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_json(document))
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _json(document: Mapping[str, Any]) -> bytes:
    """The document in UTF-8, or in ASCII if a path has bytes that are not valid UTF-8."""
    try:
        return f"{json.dumps(document, indent=2, ensure_ascii=False, default=str)}\n".encode()
    except UnicodeEncodeError:
        return f"{json.dumps(document, indent=2, default=str)}\n".encode()


def store_report(report: LoadReport, state: StateFolder | None) -> LoadReport:
    """Store a report. If that fails, log a warning: the load has already committed.

    Returns:
        The report, with its path if it was stored.
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
    """The reports of a load, newest first. Reports that can't be read are skipped."""
    if not state.reports.is_dir():
        return
    for path in sorted(state.reports.glob(f"*-{safe_name(load)}-*.json"), reverse=True):
        document = _read_json(path)
        if document.get("load") == load:
            yield document


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
