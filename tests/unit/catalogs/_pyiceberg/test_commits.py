"""Ctrl-C while PyIceberg writes JSON: pydantic makes an error of its own of it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pydantic import BaseModel, model_serializer
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2

import icestream as ice
from icestream.catalogs._pyiceberg.commits import interrupts
from tests.support.stored import folder_of, referenced_files, stored_files

_ROWS = pa.table({"id": [1, 2, 3]})


_REASONS = {"Ctrl-C": KeyboardInterrupt, "SIGTERM": SystemExit, "a defect": RuntimeError}


class _Stopped(BaseModel):
    """A model whose serializer is stopped."""

    by: str

    @model_serializer
    def stop(self) -> dict[str, Any]:
        raise {"Ctrl-C": KeyboardInterrupt, "SIGTERM": SystemExit, "a defect": RuntimeError}[
            self.by
        ]


@pytest.mark.parametrize("written", [Schema, TableMetadataV2], ids=["a manifest", "the metadata"])
def test_it_stays_an_interrupt_and_nothing_is_left(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, written: type
) -> None:
    table = catalog.create_table("db.t", _ROWS.schema)
    before = stored_files(folder_of(table))
    with monkeypatch.context() as patched:
        patched.setattr(
            written, "model_dump_json", lambda *_, **__: _Stopped(by="Ctrl-C").model_dump_json()
        )
        with pytest.raises(KeyboardInterrupt):
            ice.append(table, _ROWS)
    left = stored_files(folder_of(table)) - before
    # PyIceberg opens the next version's file before it writes to it; `orphans` finds that.
    assert not [path for path in left if not path.endswith(".metadata.json")]
    assert table.refresh().current_snapshot() is None
    ice.append(table, _ROWS)
    assert table.refresh().scan().to_arrow().num_rows == 3
    ice.orphans(table, older_than=0, delete=True, only_catalog=True)
    assert stored_files(folder_of(table)) == referenced_files(table)


@pytest.mark.parametrize(
    ("by", "raised"),
    [("Ctrl-C", KeyboardInterrupt), ("SIGTERM", SystemExit), ("a defect", ValueError)],
)
@pytest.mark.parametrize("way", ["model_dump", "model_dump_json"])
def test_errors_that_are_none_stay_what_they_are(
    by: str, raised: type[BaseException], way: str
) -> None:
    with pytest.raises(raised), interrupts():
        getattr(_Stopped(by=by), way)()
