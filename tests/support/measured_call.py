"""The child's side of `run_in_fresh_process`: make one call and write down what it took."""

from __future__ import annotations

import gc
import importlib
import pickle
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


def measure(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, int, int]:
    """Return the function's result, its peak RSS growth and the largest Arrow pool, in bytes."""
    _import_what_pyarrow_imports_later()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # Sets VmHWM back to the present size.
    before = _status_bytes("VmRSS")
    result = function(*args)
    return result, max(0, _status_bytes("VmHWM") - before), _max_arrow_pool_bytes()


def _import_what_pyarrow_imports_later() -> None:
    """Modules do not count as growth: pandas comes with the first value that PyArrow converts."""
    if "pyarrow" in sys.modules:
        for name in ("pandas", "pyarrow.dataset"):
            importlib.import_module(name)


def _status_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {name} in /proc/self/status")


def _max_arrow_pool_bytes() -> int:
    """Return the highest `max_memory()` of the pools; peaks differ in time, so not their sum."""
    pa = sys.modules.get("pyarrow")
    if pa is None:
        return 0
    highest = 0
    for pool in (pa.system_memory_pool, pa.jemalloc_memory_pool, pa.mimalloc_memory_pool):
        try:
            highest = max(highest, pool().max_memory() or 0)
        except NotImplementedError:
            continue  # This build of Arrow lacks the allocator.
    return highest


def main(task: str, answer: str) -> None:
    """Read a call from the file `task` and write its outcome, or a traceback, to `answer`."""
    outcome: tuple[Any, int, int] | str
    try:
        target, args = pickle.loads(Path(task).read_bytes())
        if isinstance(target, str):
            namespace: dict[str, Any] = {"__name__": "measured_source"}
            exec(compile(target, "<measured source>", "exec"), namespace)
            target = namespace["main"]
        outcome = measure(target, args)
        written = pickle.dumps(outcome)
    except BaseException:
        written = pickle.dumps(traceback.format_exc())
    Path(answer).write_bytes(written)


if __name__ == "__main__":
    main(*sys.argv[1:])
