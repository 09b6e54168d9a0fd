"""Measures the memory of a Python worker of Spark: its base, and the peak with its tasks.

The base is the interpreter, PyArrow, PySpark and icestream, measured before the first task of the
worker does any work. Tasks add the memory that they hold, up to their limit.

This is a separate module so that tasks that only read do not import the code that writes.
"""

from __future__ import annotations

from icestream.memory.machine import resident_bytes

Measured = tuple[int, int]
"""The peak and the base of a worker in bytes, or zeros where the system does not report them."""

_base_bytes: int | None = None


def note_base() -> None:
    """In a task, before its work: remember how much memory the worker uses by itself."""
    global _base_bytes
    if _base_bytes is None:
        _base_bytes = resident_bytes("self", "VmRSS") or 0


def measured_worker() -> Measured:
    """In a task, after its work: the peak of the worker so far, and its base."""
    note_base()
    assert _base_bytes is not None
    return resident_bytes("self", "VmHWM") or 0, _base_bytes
