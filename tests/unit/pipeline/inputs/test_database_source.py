"""Which reader a database gets, and its part of the memory."""

from __future__ import annotations

import pytest

from icestream.errors import MemoryBudgetError, MissingExtraError
from icestream.pipeline.inputs.database_source import (
    database_bytes,
    database_schema,
    is_embedded,
    needs_jdbc,
)
from icestream.pipeline.request.source_spec import SourceSpec

_SQLITE = SourceSpec.parse("sqlite:///x.db?table=t")
_DUCKDB = SourceSpec.parse("duckdb:///x.duckdb?table=t")
_MYSQL = SourceSpec.parse("jdbc:mysql://user:hush@h/d?table=t")


def test_only_databases_without_another_driver_need_jdbc() -> None:
    with_jar = {"database": "sqlite:///x.db", "table": "t", "options": {"jar": "x.jar"}}
    needs = [_SQLITE, _DUCKDB, _MYSQL, SourceSpec.parse(with_jar)]
    assert [needs_jdbc(source) for source in needs] == [False, False, True, True]
    assert [is_embedded(source) for source in needs] == [True, True, False, False]


def test_the_local_engine_says_how_else_a_database_can_be_read() -> None:
    with pytest.raises(MissingExtraError, match=r"adbc:DRIVER:URI.*option 'jar'") as refusal:
        database_schema(_MYSQL, 1 << 28)
    assert "hush" not in str(refusal.value)


def test_duckdb_has_a_part_of_the_memory_and_others_nothing() -> None:
    assert [database_bytes(each, 1 << 28) for each in (_SQLITE, _DUCKDB)] == [0, 1 << 26]
    assert database_bytes(_DUCKDB, 64_000_000) == 16 << 20
    with pytest.raises(MemoryBudgetError, match=r"raise memory to 33\.6 MB") as caught:
        database_bytes(_DUCKDB, 32_000_000)
    assert database_bytes(_DUCKDB, caught.value.needed_bytes) > 0
