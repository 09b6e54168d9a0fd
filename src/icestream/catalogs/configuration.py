"""PyIceberg's configuration file: finds mistakes in it, and names the line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_FILE = ".pyiceberg.yaml"
_EXAMPLE = "write 'catalog:', below it the catalog's name, and below that its properties"


def broken_configuration() -> str | None:
    """What is wrong with the configuration file, with its line and a remedy; None if nothing is.

    PyIceberg reads the file when it is imported, so this does not import PyIceberg.
    """
    folders = [os.environ.get("PYICEBERG_HOME"), str(Path("~").expanduser()), str(Path.cwd())]
    for folder in folders:
        path = Path(folder, _FILE) if folder else None
        if path is not None and path.is_file():
            problem = _problem(path)
            if problem is not None:
                return f"the configuration {str(path)!r} can't be read{problem}"
    return None


def _problem(path: Path) -> str | None:
    """What is wrong with a file, as the end of a sentence."""
    import strictyaml  # type: ignore[import-untyped]
    from strictyaml.ruamel.error import MarkedYAMLError  # type: ignore[import-untyped]

    try:
        data: Any = strictyaml.load(path.read_text("utf-8")).data
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f", line {mark.line + 1}"
        return f"{line}: {_plain(error)}"
    except (ValueError, OSError) as error:  # UnicodeDecodeError is a ValueError
        return f": {' '.join(str(error).split())}"
    if not data:
        return None
    if not isinstance(data, dict):
        return f": it has no names of settings: {_EXAMPLE}"
    catalogs = data.get("catalog", {})
    wrong = not isinstance(catalogs, dict) or any(
        not isinstance(each, dict) for each in catalogs.values()
    )
    return f": 'catalog' has a catalog without properties: {_EXAMPLE}" if wrong else None


def _plain(error: Any) -> str:
    """The problem in plain words, and what to do."""
    if type(error).__name__ == "FlowMappingDisallowed":
        return "braces and brackets are not allowed: write one 'name: value' on each line"
    if "\\t" in str(error.problem):
        return "a line begins with a tab: indent with spaces"
    return f"{' '.join(str(error.problem or error.context).split())}: fix this line"
