"""Changes by icestream inside a transaction that the caller commits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ValidationException,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertRefSnapshotId, SetPropertiesUpdate, UpdatesAndRequirements
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from icestream.catalogs._pyiceberg import staging
from icestream.errors import CommitConflictError, CommitError
from tests.support.tables import add_parquet_file, make_catalog

_SCHEMA = Schema(
    NestedField(1, "n", LongType()),
    NestedField(2, "s", StringType()),
    NestedField(3, "d", DoubleType()),
    NestedField(4, "nothing", LongType()),
    NestedField(5, "unknown", LongType()),
)


# `_table`, `_stage`, `_apply`, `_updates`, `_requirements`, `_register_snapshot_producer` and
# `_commit` of `Transaction` and its producers, by `table_of` and `stage`


class _Hooks:
    """A change that sets a property, and writes down what it is asked."""

    makes_snapshot = True
    snapshot_id = 7
    branch = "main"
    base_snapshot_id: int | None = None

    def __init__(self, name: str = "one", error: Exception | None = None) -> None:
        self.asked: list[str] = []
        self._name = name
        self._error = error

    def lasting(self, metadata: TableMetadata) -> UpdatesAndRequirements:
        self.asked.append("lasting")
        return (SetPropertiesUpdate(updates={f"{self._name}.lasting": "yes"}),), ()

    def produce(self, metadata: TableMetadata) -> UpdatesAndRequirements:
        self.asked.append("produce")
        if self._error is not None:
            raise self._error
        ref = metadata.refs.get(self.branch)
        head = ref.snapshot_id if ref is not None else None
        updates = (SetPropertiesUpdate(updates={f"{self._name}.produced": "yes"}),)
        return updates, (AssertRefSnapshotId(ref=self.branch, snapshot_id=head),)

    def landed(self) -> None:
        self.asked.append("landed")

    def failed(self, error: BaseException | None) -> None:
        assert isinstance(error, Exception)
        self.asked.append("failed")

    def discard(self) -> None:
        self.asked.append("discard")


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Table]:
    catalog: SqlCatalog = make_catalog(tmp_path)
    quick = {"commit.retry.min-wait-ms": "0", "commit.retry.num-retries": "2"}
    yield catalog.create_table("db.t", _SCHEMA, properties=quick)
    catalog.close()


def test_a_staged_change_is_committed_with_its_transaction(staged: Table) -> None:
    transaction, hooks = staged.transaction(), _Hooks()
    assert staging.table_of(transaction) is staged
    staging.stage(transaction, hooks)
    assert hooks.asked == ["lasting", "produce"]
    transaction.commit_transaction()
    assert hooks.asked == ["lasting", "produce", "landed"]
    assert staged.refresh().properties["one.lasting"] == "yes"
    assert staged.properties["one.produced"] == "yes"


def test_a_staged_change_is_produced_anew_for_each_try(staged: Table) -> None:
    """`_snapshot_producers`: PyIceberg asks each for what it needs to try again."""
    transaction, hooks = staged.transaction(), _Hooks()
    staging.stage(transaction, hooks)
    commit, left = staged.catalog.commit_table, [2]

    def commit_table(*args: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise CommitFailedException("another was first")
        return commit(*args)

    with mock.patch.object(staged.catalog, "commit_table", commit_table):
        transaction.commit_transaction()
    assert hooks.asked == ["lasting", "produce", "produce", "produce", "landed"]


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (CommitFailedException("no"), "failed"),
        (ValidationException("no"), "failed"),
        (CommitStateUnknownException("lost"), None),
        (RuntimeError("lost"), None),
    ],
    ids=str,
)
def test_a_staged_change_is_told_only_of_certain_failures(
    staged: Table, error: Exception, asked: str | None
) -> None:
    transaction, hooks = staged.transaction(), _Hooks()
    staging.stage(transaction, hooks)
    hooks.asked.clear()
    with (
        mock.patch.object(staged.catalog, "commit_table", side_effect=error),
        pytest.raises(type(error)),
    ):
        transaction.commit_transaction()
    assert [a for a in hooks.asked if a != "produce"] == ([asked] if asked else [])


@pytest.mark.parametrize("kind", [CommitConflictError, CommitError])
def test_a_change_that_is_refused_in_a_retry_fails_all_of_the_transaction(
    staged: Table, kind: type[CommitError]
) -> None:
    transaction, first, second = staged.transaction(), _Hooks("one"), _Hooks("two")
    staging.stage(transaction, first)
    staging.stage(transaction, second)
    second._error = kind("refused")
    with (
        mock.patch.object(
            staged.catalog, "commit_table", side_effect=CommitFailedException("other")
        ),
        pytest.raises(kind, match="refused") as refusal,
    ):
        transaction.commit_transaction()
    assert isinstance(refusal.value, ValidationException)
    assert first.asked[-1] == second.asked[-1] == "failed"


def test_a_change_that_can_not_be_staged_leaves_the_transaction_as_it_was(staged: Table) -> None:
    transaction = staged.transaction()
    transaction.set_properties({"colour": "red"})
    with pytest.raises(CommitError, match="full"):
        staging.stage(transaction, _Hooks(error=CommitError("full")))
    transaction.commit_transaction()
    assert staged.refresh().properties["colour"] == "red"
    assert not [name for name in staged.properties if name.startswith("one")]


def test_a_second_branch_is_asserted_as_well(staged: Table) -> None:
    add_parquet_file(staged, pa.table({"n": [1]}))
    head = staged.metadata.current_snapshot_id
    assert head is not None
    staged.manage_snapshots().create_branch(head, "b").commit()
    transaction, other = staged.transaction(), _Hooks("two")
    other.branch = "b"
    for hooks in (_Hooks(), _Hooks(), other):
        staging.stage(transaction, hooks)
    asserted = [r for r in transaction._requirements if isinstance(r, AssertRefSnapshotId)]
    assert [requirement.ref for requirement in asserted] == ["main", "b"]


def test_the_table_of_a_transaction_is_what_pyiceberg_computes(staged: Table) -> None:
    """`_updates`, `_table`: applied once each, instead of all anew for each look."""

    def looks(transaction: Transaction) -> None:
        ours, theirs = staging.metadata_of(transaction), transaction.table_metadata
        times = {"last_updated_ms": 0}
        assert ours.model_copy(update=times) == theirs.model_copy(update=times)

    transaction = staged.transaction()
    looks(transaction)
    transaction.set_properties(a="1")
    looks(transaction)
    for name in ("b", "c"):
        with transaction.update_schema() as update:
            update.add_column(name, LongType())
        transaction.set_properties(a=name)
        looks(transaction)
    transaction.update_snapshot().fast_append().commit()
    looks(transaction)
    transaction.update_snapshot().fast_append().commit()
    looks(transaction)
    assert len(staging.metadata_of(transaction).snapshots) == len(staged.snapshots()) + 2
    before = staging.metadata_of(transaction)
    assert staging.metadata_of(transaction) is before
    transaction._updates = transaction._updates[:1]  # as PyIceberg does before it tries again
    looks(transaction)
    staged.refresh()
    looks(transaction)
