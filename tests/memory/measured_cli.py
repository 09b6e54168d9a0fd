"""Commands for a measured process. icestream comes first: it chooses Arrow's allocator."""

from __future__ import annotations

import icestream as ice  # isort: skip
from icestream.cli.main import cli  # isort: skip

import os
from contextlib import redirect_stdout, suppress
from io import StringIO


def scan(folder: str, *arguments: str) -> str:
    """Run a scan and return its output. A first one is not counted, because it imports modules."""
    os.chdir(folder)
    _run("scan", "db.t", "-q", "--limit", "1", "-o", "first.csv")
    return _run("scan", "db.t", "-q", "--json", *arguments)


def _run(*arguments: str) -> str:
    printed = StringIO()
    with redirect_stdout(printed), suppress(SystemExit):  # what it says is looked at
        cli.main(list(arguments))
    return printed.getvalue()


_ = ice.scan  # Imports are not measured.
