"""A manifest that can't be written to its end: what stopped it is what the user gets to see."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestEntry, ManifestListWriter, ManifestWriter
from pyiceberg.table import Table

import icestream as ice
from tests.support.stored import folder_of, stored_files

_ROWS = pa.table({"id": [1, 2, 3]})
_STOPPED_BY: dict[str, tuple[BaseException, type[BaseException]]] = {
    "Ctrl-C": (KeyboardInterrupt(), KeyboardInterrupt),
    "SIGTERM": (SystemExit(143), SystemExit),
    "a file that is not there": (FileNotFoundError("gone"), ice.CommitError),
}


@pytest.fixture
def table(catalog: Catalog) -> Table:
    made = catalog.create_table("db.t", _ROWS.schema)
    ice.append(made, _ROWS)
    return made


@pytest.mark.parametrize("by", _STOPPED_BY)
def test_before_its_first_entry(table: Table, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    error, raised = _STOPPED_BY[by]
    before = stored_files(folder_of(table))

    def fail(self: ManifestWriter, entry: ManifestEntry) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(ManifestWriter, "delete", fail)
        with pytest.raises(raised) as caught:
            ice.overwrite(table, _ROWS)
    assert "empty manifest" not in str(caught.value)
    assert stored_files(folder_of(table)) == before
    assert table.refresh().scan().to_arrow().num_rows == 3


@pytest.mark.parametrize("by", _STOPPED_BY)
@pytest.mark.parametrize("kind", [ManifestWriter, ManifestListWriter], ids=["manifest", "list"])
def test_in_a_store_that_can_not_close_it_either(
    table: Table, monkeypatch: pytest.MonkeyPatch, kind: type, by: str
) -> None:
    error, raised = _STOPPED_BY[by]

    def fail(self: Any, *_: object) -> None:
        stream = self._writer.output_stream
        monkeypatch.setattr(self._writer, "output_stream", _Unclosable(stream))
        raise error

    with monkeypatch.context() as patched:
        for name in ("add_entry", "add_manifests"):
            if hasattr(kind, name):
                patched.setattr(kind, name, fail)
        with pytest.raises(raised) as caught:
            ice.append(table, _ROWS)
    assert "can't be closed" not in str(caught.value)
    assert table.refresh().scan().to_arrow().num_rows == 3


class _Unclosable:
    """A stream of a store that has gone away."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def close(self) -> None:
        self._stream.close()
        raise OSError("can't be closed")
