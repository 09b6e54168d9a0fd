"""What a Python worker of Spark takes in all: a base, and what its tasks hold on top of it.

The base is the interpreter, PyArrow, PySpark and icestream. It is measured in the worker, before
its first task does any work. Tasks add what they hold, which their limit bounds.
"""

from __future__ import annotations

from icestream.machine import resident_bytes

Measured = tuple[int, int]
"""The peak and the base of a worker, in bytes; zeros where the system does not say."""

_base_bytes: int | None = None


def note_base() -> None:
    """In a task, before its work: remember what the worker takes by itself."""
    global _base_bytes
    if _base_bytes is None:
        _base_bytes = resident_bytes("self", "VmRSS") or 0


def measured_worker() -> Measured:
    """In a task, after its work: the most that the worker has taken so far, and its base."""
    note_base()
    assert _base_bytes is not None
    return resident_bytes("self", "VmHWM") or 0, _base_bytes
