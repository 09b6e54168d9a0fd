"""How far a run is, on disk: a run that was killed is taken up where it was.

The file says which loads are done only so that they need not be looked at again. What keeps a load
from being committed twice is its id, which is made of the run's: the id is on disk before the
first load begins.
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
from icestream.pipeline.state_folder import StateFolder, safe_name, write_json

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class LoadState:
    """How far a load is.

    Attributes:
        status: Whether it is done, or its tests failed; `"begun"` otherwise.
        fingerprint: How it was written in the file when it began.
        snapshot_id: The snapshot that it made.
        old_branches: Audit branches of runs that were given up, still to be dropped.
        created_uuid: Of the table, if the load was to create it before it was tested.
        left_out: Columns of the sources that have no type, which that table was created without.
    """

    status: Literal["begun", "done", "tests failed"] = "begun"
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
    """

    pipeline: str
    run_id: str
    wanted: list[str]
    loads: dict[str, LoadState] = field(default_factory=dict)
    completed: bool = False

    def load(self, name: str) -> LoadState:
        """How far a load is."""
        return self.loads.setdefault(name, LoadState())

    def load_id(self, name: str) -> str:
        """The id that a load is committed with."""
        return f"{self.pipeline}/{self.run_id}/{name}"


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

    def open_run(self) -> RunState | None:
        """The newest run, if it was not completed."""
        state = self._read()
        return None if state is None or state.completed else state

    def begin(self, wanted: Sequence[str], *, fresh: bool) -> tuple[RunState, bool]:
        """Go on with the run that was not completed, or begin one. It is on disk afterwards.

        Args:
            wanted: The loads to do.
            fresh: Whether to begin one in any case.

        Returns:
            The run, and whether it had been begun before.

        Raises:
            InvalidArgumentError: If it can't be written to disk.
        """
        last = self.open_run()
        if last is not None and not fresh:
            last.wanted = list(dict.fromkeys([*last.wanted, *wanted]))
            state = last
        else:
            now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
            run_id = f"{now}_{secrets.token_hex(3)}"
            state = RunState(self._pipeline, run_id, list(wanted))
            for name, load in (last.loads if last else {}).items():
                if load.status != "done":
                    branches = [*load.old_branches, audit_name(last.run_id, name)]  # type: ignore[union-attr]
                    state.load(name).old_branches = branches
        try:
            self._write(state)
        except OSError as error:
            raise self._unwritable(error) from error
        return state, state is last

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
