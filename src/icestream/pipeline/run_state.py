"""The progress of a run on disk, so that the next run can resume it after a crash.

The load id prevents a load from being committed twice. It is on disk before the load starts, and
changes only if the load's definition or inputs change. A run that ended is never resumed, even if
loads failed.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from icestream.errors import InvalidArgumentError
from icestream.pipeline.inputs.load_identity import IsCommitted, LoadIdentity
from icestream.pipeline.reports.state_folder import LoadState, StateFolder, safe_name, write_json
from icestream.pipeline.request.load_spec import LoadSpec

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class RunState:
    """One run.

    Attributes:
        pipeline: The pipeline's name.
        run_id: The run's id.
        wanted: Names of the loads to run.
        loads: The state of each load.
        completed: Whether all loads are done.
        ended: Whether the run has ended, so that the next one is a new run.
        again: Whether inputs that were loaded before are appended again.
    """

    pipeline: str
    run_id: str
    wanted: list[str]
    loads: dict[str, LoadState] = field(default_factory=dict)
    completed: bool = False
    ended: bool = False
    again: bool = False

    def load(self, name: str) -> LoadState:
        """The state of a load."""
        return self.loads.setdefault(name, LoadState())

    def load_id(self, name: str) -> str:
        """A load id from the run's id. It changes if the load's definition or inputs change."""
        changes = self.load(name).changes
        changed = f"/{changes}" if changes else ""
        return f"{self.pipeline}/{self.run_id}/{name}{changed}"

    def name_load(self, spec: LoadSpec, identity: LoadIdentity, is_committed: IsCommitted) -> str:
        """Choose the load id. It changes only if the definition or the inputs change."""
        name, again = spec.name, self.again or spec.again
        known = self.load(name)
        wanted = (identity.definition, identity.inputs)
        if known.load_id is not None and (known.definition, known.inputs) == wanted:
            return known.load_id
        if known.load_id is not None:
            known.changes += 1
            known.status = "begun"
        own, by_inputs = self.load_id(name), identity.load_id
        if known.load_id is None and is_committed(own):
            by_inputs = None  # an older version derived all load ids from the run
        elif by_inputs is not None and again and is_committed(by_inputs):
            by_inputs = None
        known.load_id = by_inputs or own
        known.definition, known.inputs = wanted
        return known.load_id


class RunFile:
    """The file with the state of a pipeline's newest run.

    Args:
        folder: The state folder.
        pipeline: The pipeline's name.
    """

    def __init__(self, folder: StateFolder, pipeline: str) -> None:
        self._pipeline = pipeline
        self.path: Path = folder.path / "runs" / f"{safe_name(pipeline)}.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the pipeline, so that no other run can start.

        Raises:
            InvalidArgumentError: If another run has the lock, or the folder is not writable.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InvalidArgumentError(
                    f"the pipeline {self._pipeline!r} is already running (it holds "
                    f"{self.path.with_suffix('.lock')}): wait for it to end, or rename one of them"
                ) from error
            yield
        finally:
            os.close(handle)

    def open_run(self, *, again: bool = False) -> RunState | None:
        """The newest run, if it crashed; with `again`, only if that run also had `again`."""
        state = self._read()
        if state is None or state.ended or (again and not state.again):
            return None
        return state

    def begin(
        self, wanted: Sequence[str], *, fresh: bool, again: bool = False
    ) -> tuple[RunState, bool]:
        """Resume the run that crashed, or start a new one, and write it to disk.

        Args:
            wanted: Names of the loads to run.
            fresh: Whether to start a new run in any case.
            again: Whether inputs that were loaded before are appended again.

        Returns:
            The run, and whether it was resumed.

        Raises:
            InvalidArgumentError: If the run can't be written to disk.
        """
        crashed = None if fresh else self.open_run(again=again)
        if crashed is not None:
            crashed.wanted = list(dict.fromkeys([*crashed.wanted, *wanted]))
        state = crashed or self._new(wanted, again)
        try:
            write_json(self.path, asdict(state))
        except OSError as error:
            raise self._unwritable(error) from error
        return state, state is crashed

    def _new(self, wanted: Sequence[str], again: bool) -> RunState:
        """A new run, which will drop the audit branches that the last run left behind."""
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        state = RunState(self._pipeline, f"{now}_{secrets.token_hex(3)}", list(wanted), again=again)
        last = self._read()
        for name, load in (last.loads if last else {}).items():
            branches = list(load.old_branches)
            if last is not None and load.status != "done" and load.fingerprint:
                branches.append(audit_name(last.run_id, name))
            if branches:
                state.load(name).old_branches = branches
        return state

    def keep(self, state: RunState) -> None:
        """Write the state. If that fails, later runs find committed loads by their ids."""
        done = {name for name, load in state.loads.items() if load.status == "done"}
        state.completed = set(state.wanted) <= done
        try:
            write_json(self.path, asdict(state))
        except OSError as error:
            _log.warning("the state of the run could not be written to %s: %s", self.path, error)

    def _read(self) -> RunState | None:
        try:
            document: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
            loads = {name: LoadState(**load) for name, load in document.pop("loads").items()}
            if "ended" not in document:  # written by a version that resumed runs whose tests failed
                failed = any(load.status == "tests failed" for load in loads.values())
                document["ended"] = document["completed"] or failed
            return RunState(**document, loads=loads)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidArgumentError(
                f"the state of the last run, {self.path}, can't be read ({error}): fix the file or "
                "delete it, to start a new run, which repeats the loads of the last one"
            ) from error

    def _unwritable(self, error: OSError) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"the state of the run can't be written to {self.path.parent} ({error.strerror}): give "
            "state= another folder, or set ICESTREAM_STATE"
        )


def audit_name(run_id: str, load: str) -> str:
    """The name of the audit branch of a load, on which its tests run."""
    return f"icestream_audit_{safe_name(load).replace('.', '_').replace('-', '_')}_{run_id}"
