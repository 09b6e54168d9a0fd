"""How far a run is, on disk: a run that crashed is resumed where it was.

What keeps a load from being committed twice is its id, which is on disk before the load begins. A
load keeps its id while its definition and inputs are the same. A run that came to its end, whether
loads failed or not, is never resumed.
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
from typing import Any, Literal

from icestream.errors import InvalidArgumentError
from icestream.pipeline.load_identity import IsCommitted, LoadIdentity
from icestream.pipeline.load_spec import LoadSpec
from icestream.pipeline.state_folder import StateFolder, safe_name, write_json

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class LoadState:
    """How far a load is.

    Attributes:
        status: Whether it is done, or its tests failed; `"begun"` otherwise.
        load_id: The id that it is committed with; None before it began.
        definition: The digest of its definition when it began.
        inputs: The digest of its inputs then; None if they can't be known again.
        changes: How often definition or inputs have changed in this run.
        fingerprint: How a load with tests was written in the file when it began.
        snapshot_id: The snapshot that it made.
        old_branches: Audit branches of runs that were given up, still to be dropped.
        created_uuid: Of the table, if the load was to create it before it was tested.
        left_out: Columns of the sources that have no type, which that table was created without.
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


@dataclass(slots=True)
class RunState:
    """One run.

    Attributes:
        pipeline: The pipeline's name.
        run_id: The run's.
        wanted: The loads that it is to do.
        loads: How far they are.
        completed: Whether all of them are done.
        ended: Whether it came to its end, so that the next run is a new one.
        again: Whether it repeats appends of inputs that were loaded before.
    """

    pipeline: str
    run_id: str
    wanted: list[str]
    loads: dict[str, LoadState] = field(default_factory=dict)
    completed: bool = False
    ended: bool = False
    again: bool = False

    def load(self, name: str) -> LoadState:
        """How far a load is."""
        return self.loads.setdefault(name, LoadState())

    def load_id(self, name: str) -> str:
        """The id of a load that is not known by its inputs; another one if these have changed."""
        changes = self.load(name).changes
        changed = f"/{changes}" if changes else ""
        return f"{self.pipeline}/{self.run_id}/{name}{changed}"

    def name_load(self, spec: LoadSpec, identity: LoadIdentity, is_committed: IsCommitted) -> str:
        """The id that a load is committed with: the same one for the same load."""
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
            by_inputs = None  # by a version of icestream that named all loads after their runs
        elif by_inputs is not None and again and is_committed(by_inputs):
            by_inputs = None
        known.load_id = by_inputs or own
        known.definition, known.inputs = wanted
        return known.load_id


class RunFile:
    """The file of a pipeline's newest run.

    Args:
        folder: The state folder.
        pipeline: The pipeline's name.
    """

    def __init__(self, folder: StateFolder, pipeline: str) -> None:
        self._pipeline = pipeline
        self.path: Path = folder.path / "runs" / f"{safe_name(pipeline)}.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs of the pipeline away.

        Raises:
            InvalidArgumentError: If there is one, or the folder can't be written to.
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
                    f"the pipeline {self._pipeline!r} is running already (it holds "
                    f"{self.path.with_suffix('.lock')}): wait for it, or give it another name"
                ) from error
            yield
        finally:
            os.close(handle)

    def open_run(self, *, again: bool = False) -> RunState | None:
        """The newest run, if it crashed; with `again`, only one that repeats appends, too."""
        state = self._read()
        if state is None or state.ended or (again and not state.again):
            return None
        return state

    def begin(
        self, wanted: Sequence[str], *, fresh: bool, again: bool = False
    ) -> tuple[RunState, bool]:
        """Resume the run that crashed, or begin one. It is on disk afterwards.

        Args:
            wanted: The loads to do.
            fresh: Whether to begin one in any case.
            again: Whether it repeats appends of inputs that were loaded before.

        Returns:
            The run, and whether it had been begun before.

        Raises:
            InvalidArgumentError: If it can't be written to disk.
        """
        crashed = None if fresh else self.open_run(again=again)
        if crashed is not None:
            crashed.wanted = list(dict.fromkeys([*crashed.wanted, *wanted]))
        state = crashed or self._new(wanted, again)
        try:
            self._write(state)
        except OSError as error:
            raise self._unwritable(error) from error
        return state, state is crashed

    def _new(self, wanted: Sequence[str], again: bool) -> RunState:
        """A new run, which drops the audit branches that the last one has left."""
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
        """Write how far the run is. A disk that fails costs a second look, and no load."""
        done = {name for name, load in state.loads.items() if load.status == "done"}
        state.completed = set(state.wanted) <= done
        try:
            self._write(state)
        except OSError as error:
            _log.warning("how far the run is could not be written to %s: %s", self.path, error)

    def _write(self, state: RunState) -> None:
        write_json(self.path, asdict(state))

    def _read(self) -> RunState | None:
        try:
            told: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
            loads = {name: LoadState(**load) for name, load in told.pop("loads").items()}
            if "ended" not in told:  # written by a version that resumed runs whose tests failed
                failed = any(load.status == "tests failed" for load in loads.values())
                told["ended"] = told["completed"] or failed
            return RunState(**told, loads=loads)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidArgumentError(
                f"{self.path}, which says how far the last run is, can't be read ({error}): put it "
                "right, or delete it to begin a new run, which loads again what that one has loaded"
            ) from error

    def _unwritable(self, error: OSError) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"a run keeps in {self.path.parent} how far it is, and that can't be written to "
            f"({error.strerror}): give state= another folder, or set ICESTREAM_STATE"
        )


def audit_name(run_id: str, load: str) -> str:
    """The branch on which a load of a run waits for its tests."""
    return f"icestream_audit_{safe_name(load).replace('.', '_').replace('-', '_')}_{run_id}"
