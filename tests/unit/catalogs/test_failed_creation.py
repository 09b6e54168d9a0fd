"""A load that fails leaves no catalog, namespace, folder or checkpoint that it has created."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import icestream as ice
from icestream.catalogs.failed_creation import local_catalog_undone
from icestream.catalogs.lookup import has_local_catalog, make_local_catalog
from icestream.errors import CommitUnknownError, IcestreamError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with files, where no catalog is configured."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    (work / "good.csv").write_text("id\n1\n")
    (work / "bad.csv").write_text("id\n1\nx\n")
    return work


def _all(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


_FAILING: list[dict[str, Any]] = [
    {"sources": "nothing.csv"},
    {"schema": {"id": "int64"}},  # fails after rows were written
    {"mode": "merge"},
    {"partition_by": "nope"},
    {"memory": "1kB"},
    {"incremental": True, "schema": {"id": "int64"}},
    {"incremental": True, "checkpoint": "own/checkpoint", "schema": {"id": "int64"}},
]


@pytest.mark.parametrize("options", _FAILING, ids=lambda options: " ".join(options))
def test_a_load_that_fails_creates_nothing(folder: Path, options: dict[str, Any]) -> None:
    before = _all(folder)
    options = {"sources": "bad.csv", "into": "shop.t", "engine": "local"} | options
    with pytest.raises(IcestreamError):
        ice.load(**options)
    assert _all(folder) == before


def test_a_load_that_fails_keeps_what_others_have_created(folder: Path) -> None:
    ice.load("good.csv", "shop.good", engine="local", state="")
    before = _all(folder)
    for into in ("shop.bad", "other.bad"):
        with pytest.raises(IcestreamError):
            ice.load("bad.csv", into, engine="local", schema={"id": "int64"})
    assert _all(folder) == before
    catalog = make_local_catalog()
    assert catalog.list_namespaces() == [("shop",)]
    catalog.close()


def test_a_catalog_with_a_namespace_or_an_unknown_commit_stays(folder: Path) -> None:
    def create(error: Exception, *, namespace: bool) -> None:
        with local_catalog_undone():
            catalog = make_local_catalog()
            if namespace:
                catalog.create_namespace("theirs")
            catalog.close()
            raise error

    with pytest.raises(ValueError, match="one"):
        create(ValueError("one"), namespace=False)
    assert not has_local_catalog()
    for error, namespace in (
        (CommitUnknownError("two", snapshot_id=1), False),
        (ValueError("two"), True),
    ):
        with pytest.raises(type(error), match="two"):
            create(error, namespace=namespace)
        assert has_local_catalog()
