"""Fresh processes whose memory is measured or limited.

`run_in_fresh_process` measures one call; `run_under_memory_cgroup` kills what takes too much, as a
container does.
"""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
_CGROUP_ROOT = Path("/sys/fs/cgroup/memory")
_cgroup_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """What a call in a fresh process returned and took.

    Attributes:
        result: What the function returned.
        peak_rss_growth_bytes: Highest resident size during the call, above that just before it.
        max_arrow_pool_bytes: Highest number of bytes in any one Arrow memory pool so far.
    """

    result: Any
    peak_rss_growth_bytes: int
    max_arrow_pool_bytes: int


@dataclass(frozen=True, slots=True)
class CgroupReport:
    """How a process ended under a memory limit.

    Attributes:
        exit_code: As of `subprocess`: -9 for a process that the kernel killed.
        max_usage_bytes: Peak memory charged to the process tree. Page cache of files is part of
            it, so it may reach the limit without harm: the kernel then takes cache back.
        oom_kills: How many processes the kernel killed at the limit; None if unknown.
        stdout: Its standard output.
        stderr: Its standard error.
    """

    exit_code: int
    max_usage_bytes: int
    oom_kills: int | None
    stdout: str
    stderr: str


class FreshProcessError(Exception):
    """A call in a fresh process raised or the process died; the message has its traceback."""


def run_in_fresh_process(
    target: Callable[..., Any] | str,
    *args: Any,
    env: Mapping[str, str] | None = None,
    timeout_seconds: float = 150,
) -> ProcessReport:
    """Call `target(*args)` in a new Python process and measure its memory.

    Args:
        target: A module-level function, found again by its module and name; or source code that
            defines `main(*args)`.
        *args: Picklable arguments. The result must be picklable too.
        env: Variables to set on top of this process's.
        timeout_seconds: After which the process is killed.
    """
    if not isinstance(target, str) and "<" in target.__qualname__:
        raise ValueError(f"{target.__qualname__} is not at module level; pass source code instead")
    with tempfile.TemporaryDirectory() as directory:
        task, answer = Path(directory, "task"), Path(directory, "answer")
        task.write_bytes(pickle.dumps((target, args)))
        process = subprocess.run(
            [sys.executable, "-m", "tests.support.measured_call", str(task), str(answer)],
            cwd=REPOSITORY,
            env=_environment(env),
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
        if not answer.exists():
            raise FreshProcessError(f"exit code {process.returncode}\n{process.stderr}")
        outcome = pickle.loads(answer.read_bytes())
    if isinstance(outcome, str):
        raise FreshProcessError(outcome)
    return ProcessReport(*outcome)


def memory_cgroup_available() -> bool:
    """Return whether this process may make version-1 memory cgroups here."""
    if not (_CGROUP_ROOT / "memory.limit_in_bytes").exists():
        return False
    try:
        with _memory_cgroup(1 << 30):
            return True
    except OSError:
        return False


def run_under_memory_cgroup(
    limit_bytes: int,
    argv: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str] | None = None,
    timeout_seconds: float = 150,
) -> CgroupReport:
    """Run a command under a hard limit on its memory, children included.

    The cgroup and whatever still runs in it are removed at the end, whichever way it comes.
    """
    with _memory_cgroup(limit_bytes) as cgroup:
        # The shell joins the cgroup before the command starts, so that nothing goes uncounted.
        join = 'echo $$ > "$0" && exec "$@"'
        process = subprocess.run(
            ["/bin/sh", "-c", join, str(cgroup / "cgroup.procs"), *map(os.fspath, argv)],
            cwd=REPOSITORY,
            env=_environment(env),
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
        return CgroupReport(
            exit_code=process.returncode,
            max_usage_bytes=int((cgroup / "memory.max_usage_in_bytes").read_text()),
            oom_kills=_oom_kills(cgroup),
            stdout=process.stdout,
            stderr=process.stderr,
        )


def _environment(extra: Mapping[str, str] | None) -> dict[str, str]:
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src")])
    return {**os.environ, "PYTHONPATH": path, **(extra or {})}


@contextmanager
def _memory_cgroup(limit_bytes: int) -> Iterator[Path]:
    cgroup = _CGROUP_ROOT / f"icestream-tests-{os.getpid()}-{next(_cgroup_numbers)}"
    cgroup.mkdir()
    try:
        (cgroup / "memory.limit_in_bytes").write_text(str(limit_bytes))
        with_swap = cgroup / "memory.memsw.limit_in_bytes"
        if with_swap.exists():
            with_swap.write_text(str(limit_bytes))
        yield cgroup
    finally:
        _remove(cgroup)


def _remove(cgroup: Path) -> None:
    """Remove a cgroup, killing what is left in it; the kernel may need a moment."""
    give_up = time.monotonic() + 10
    while True:
        for pid in (cgroup / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        try:
            cgroup.rmdir()
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.02)
        else:
            return


def _oom_kills(cgroup: Path) -> int | None:
    lines = (cgroup / "memory.oom_control").read_text().splitlines()
    counts = dict(line.split() for line in lines if len(line.split()) == 2)
    return int(counts["oom_kill"]) if "oom_kill" in counts else None
