"""The folder in which loads keep reports and checkpoints."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DEFAULT_FOLDER = "icestream_state"
VARIABLE = "ICESTREAM_STATE"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class StateFolder:
    """Reports and checkpoints, below one folder, which is made with the first of them.

    Args:
        path: The folder; what the variable `ICESTREAM_STATE` says, or `./icestream_state`, if None.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path or os.environ.get(VARIABLE) or DEFAULT_FOLDER).absolute()

    @property
    def reports(self) -> Path:
        """Where reports are."""
        return self.path / "reports"

    def checkpoint(self, name: str) -> Path:
        """Where the checkpoint of a load is, unless its caller says otherwise."""
        return self.path / "checkpoints" / safe_name(name)


def safe_name(name: str) -> str:
    """The name as a part of a path."""
    return _UNSAFE.sub("_", name).strip(".") or "_"


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document so that others see all of it, or what was there before.

    It is on the disk when this returns.
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
    """The document in UTF-8; in ASCII where a path has bytes that are not valid UTF-8."""
    try:
        return f"{json.dumps(document, indent=2, ensure_ascii=False, default=str)}\n".encode()
    except UnicodeEncodeError:
        return f"{json.dumps(document, indent=2, default=str)}\n".encode()
