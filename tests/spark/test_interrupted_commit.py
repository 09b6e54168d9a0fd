"""Ctrl-C while the catalog is asked: what may be in the table is never deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream.spark as ice_spark
from icestream.commit import committer
from tests.support.merges import MODES, filled, found
from tests.support.stored import folder_of, referenced_files, stored_files

Interrupt = Callable[[bool], None]


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Interrupt:
    """Have Ctrl-C come when the catalog has answered, or before it is asked."""
    ask = committer.commit_to_catalog

    def prepare(after: bool) -> None:
        def asked(*arguments: Any, **options: Any) -> None:
            if after:
                ask(*arguments, **options)
            raise KeyboardInterrupt

        monkeypatch.setattr(committer, "commit_to_catalog", asked)

    return prepare


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_what_a_merge_has_committed_stays(
    spark: Any, catalog: SqlCatalog, interrupt: Interrupt, mode: str
) -> None:
    table = filled(catalog, [(n, 0, "old") for n in range(10)])
    frame = spark.createDataFrame(
        [(3, 0, "new"), (20, 0, "new")], "id long, part long, text string"
    )
    interrupt(True)
    with pytest.raises(KeyboardInterrupt):
        ice_spark.merge(frame, table, on="id", write_mode=mode)
    expected = [(n, 0, "new" if n in (3, 20) else "old") for n in (*range(10), 20)]
    assert found(table) == expected
    assert referenced_files(table) <= stored_files(folder_of(table))
