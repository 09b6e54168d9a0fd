"""Settings of a session."""

from __future__ import annotations

from icestream.memory.budget import DEFAULT_MEMORY, parse_bytes
from icestream.spark.setup.settings import SessionDefaults


def test_the_defaults_of_a_session_are_those_of_the_library() -> None:
    assert SessionDefaults().memory_bytes == parse_bytes(DEFAULT_MEMORY)
