"""Mistakes in PyIceberg's configuration file are named with their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from icestream.catalogs.configuration import broken_configuration


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("catalog:\n  default: [oops\n", "line 2: braces and brackets are not allowed"),
        ("catalog:\n\tdefault:\n", "line 2: a line begins with a tab: indent with spaces"),
        ("catalog:\n  a:\n    uri: x\n  a:\n    uri: y\n", "line 4: Duplicate key"),
        ("- a\n", "it has no names of settings: write 'catalog:'"),
        ("catalog:\n  default: here\n", "'catalog' has a catalog without properties"),
        ("catalog:\n  default:\n    uri: sqlite:///x.db\n", None),
        ("", None),
    ],
)
def test_a_mistake_is_named_with_its_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str | None
) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    (tmp_path / ".pyiceberg.yaml").write_text(text)
    problem = broken_configuration()
    if message is None:
        assert problem is None
    else:
        assert problem is not None
        assert str(tmp_path / ".pyiceberg.yaml") in problem
        assert message in problem
