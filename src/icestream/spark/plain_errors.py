"""Our errors as Spark is to show them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from icestream.errors import IcestreamError


@contextmanager
def plain_errors() -> Iterator[None]:
    """Have our errors end alone: Spark shows what they were caused by, with all it holds."""
    try:
        yield
    except IcestreamError as error:
        error.__cause__ = None
        error.__suppress_context__ = True
        raise
