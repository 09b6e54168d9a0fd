"""A table that comes into being with its first load.

Nothing is in the catalog until the load is committed: what fails leaves no empty table, and nobody
has to decide whether one may be dropped again. Whoever is second finds the table there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import CreateTableTransaction, StagedTable, Table, TableProperties
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from icestream._pyiceberg import discard_staged, interrupts, settle_staged, table_of
from icestream.commit.retry import Backoff
from icestream.commit.sent import SentCommit
from icestream.errors import (
    CatalogError,
    CommitConflictError,
    CommitError,
    CommitUnknownError,
    InvalidArgumentError,
    SchemaMismatchError,
)
from icestream.file_access import without_catalog_secrets
from icestream.redaction import error_text
from icestream.write.schema import SchemaPlan, plan_schema
from icestream.write.spec_text import partition_spec, sort_order
from icestream.write.target import WriteTarget


class TableCreatedError(CommitConflictError):
    """Somebody else created the table meanwhile."""


class Creation(CreateTableTransaction):
    """A transaction that `NewTable.create` commits: the changes staged in it learn how it ended."""


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that is not in its catalog yet: plain data.

    Attributes:
        identifier: Its name.
        metadata: What it will be, without a snapshot.
        metadata_location: Where its first metadata would be.
        io: How its files are opened.
        discarded: Columns of the stream that have no type, and are left out.
    """

    identifier: tuple[str, ...]
    metadata: TableMetadata = field(repr=False)
    metadata_location: str
    io: FileIO = field(repr=False)
    discarded: tuple[str, ...] = ()

    @classmethod
    def plan(
        cls,
        catalog: Catalog,
        name: str,
        stream: pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> NewTable:
        """Work a table out from a stream's columns. All of them are optional in it.

        Args:
            catalog: Where it is going to be.
            name: Its name, such as `"db.t"`.
            stream: The stream's schema.
            partition_by: Texts such as `"day(ts)"`: see `icestream.write.spec_text`.
            sort_by: Texts such as `"price desc"`.
            properties: The table's.

        Raises:
            SchemaMismatchError: If Iceberg has no type for a column.
            InvalidArgumentError: If the texts do not fit the columns.
            CatalogError: If the catalog refuses.
        """
        settings = dict(properties or {})
        planned = new_table_schema(name, stream, settings)
        spec = partition_spec(partition_by, planned.schema)
        order = sort_order(sort_by, planned.schema)
        try:
            with interrupts():
                transaction = catalog.create_table_transaction(
                    name,
                    planned.schema,
                    partition_spec=spec if spec.fields else UNPARTITIONED_PARTITION_SPEC,
                    sort_order=order if order.fields else UNSORTED_SORT_ORDER,
                    properties=settings,
                )
        except NoSuchNamespaceError as error:
            raise CatalogError(
                f"table {name!r} can't be created: {error}. Create the namespace first"
            ) from error
        except Exception as error:
            raise CatalogError(
                f"table {name!r} can't be created: {error_text(error, catalog.properties)}"
            ) from error
        staged = _staged(transaction)
        return cls(
            staged.name(),
            staged.metadata,
            staged.metadata_location,
            without_catalog_secrets(staged.io),
            planned.discarded,
        )

    @property
    def name(self) -> str:
        """The table's name."""
        return ".".join(self.identifier)

    def check_branch(self, branch: str | None) -> None:
        """Refuse any branch but main.

        Raises:
            InvalidArgumentError: If it is another one.
        """
        if branch not in (None, MAIN_BRANCH):
            raise InvalidArgumentError(
                f"{self.name} is not there yet and has no branch {branch!r}: leave branch out"
            )

    def table(self, catalog: Catalog) -> StagedTable:
        """The table as PyIceberg sees it: it can't be refreshed or scanned."""
        return StagedTable(self.identifier, self.metadata, self.metadata_location, self.io, catalog)

    def transaction(self, catalog: Catalog) -> Creation:
        """A transaction for `create`, in which the first load is staged."""
        return Creation(self.table(catalog))

    def create(self, transaction: Creation, catalog: Catalog, snapshot_id: int | None) -> Table:
        """Commit the transaction that creates the table.

        Args:
            transaction: From `transaction`, with the first load staged in it.
            catalog: Where the table is going to be.
            snapshot_id: The load's snapshot; None if nothing was staged.

        Raises:
            TableCreatedError: If there is such a table now, by somebody else.
            CommitUnknownError: If it is not known whether the table was created.
            CommitError: If the catalog refused.
        """
        sent = SentCommit(catalog, self.name, MAIN_BRANCH, snapshot_id or 0)
        try:
            with interrupts(), sent.request(None, self.metadata.next_sequence_number()):
                created = transaction.commit_transaction()
        except Exception as error:
            created = self._created_after(error, transaction, sent, snapshot_id)
        except BaseException:
            with contextlib.suppress(Exception):
                if self._look(catalog, sent, snapshot_id) is None and not sent.may_be_in_table:
                    discard_staged(transaction)
            raise
        settle_staged(transaction)
        return created

    def _created_after(
        self, error: Exception, transaction: Creation, sent: SentCommit, snapshot_id: int | None
    ) -> Table:
        """The table, if it was created in spite of an error."""
        catalog = table_of(transaction).catalog
        backoff = Backoff.of(self.metadata.properties)
        try:
            found = sent.settle(error, lambda: self._look(catalog, sent, snapshot_id), backoff)
        except TableCreatedError:
            discard_staged(transaction)
            raise
        except CommitUnknownError as unknown:
            raise self._unknown(catalog, error, snapshot_id) from unknown.__cause__
        if found is not None:
            return found
        discard_staged(transaction)
        raise CommitError(
            f"the catalog did not create {self.name}: {error_text(error, catalog.properties)}"
        ) from error

    def _look(self, catalog: Catalog, sent: SentCommit, snapshot_id: int | None) -> Table | None:
        """The table, if it is there.

        Raises:
            TableCreatedError: If another one is there: this one can't be created any more.
        """
        try:
            table = catalog.load_table(self.identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            sent.note_absence(None)
            return None
        has_our_load = snapshot_id is not None and table.metadata.snapshot_by_id(snapshot_id)
        if has_our_load or table.metadata.table_uuid == self.metadata.table_uuid:
            return table
        raise TableCreatedError(
            f"{self.name} was created by somebody else meanwhile. Nothing was changed; load again, "
            "into the table that is there now"
        )

    def _unknown(
        self, catalog: Catalog, error: Exception, snapshot_id: int | None
    ) -> CommitUnknownError:
        return CommitUnknownError(
            f"the catalog did not say whether {self.name} was created "
            f"({error_text(error, catalog.properties)}). No file was deleted: see whether the "
            "table is there",
            snapshot_id=snapshot_id or 0,
        )


def new_table_schema(name: str, stream: pa.Schema, properties: Mapping[str, str]) -> SchemaPlan:
    """What the columns become: as if they were added to a table without any.

    Raises:
        SchemaMismatchError: If Iceberg has no type for a column.
        InvalidArgumentError: If the properties ask for what can't be written.
    """
    version = properties.get(
        TableProperties.FORMAT_VERSION, str(TableProperties.DEFAULT_FORMAT_VERSION)
    )
    if version not in ("1", "2"):
        raise InvalidArgumentError(
            f"the new table's format-version is {version!r}: icestream writes 1 and 2"
        )
    empty = new_table_metadata(
        Schema(),
        UNPARTITIONED_PARTITION_SPEC,
        UNSORTED_SORT_ORDER,
        location="",
        properties={TableProperties.FORMAT_VERSION: version},
    )
    target = WriteTarget(name, empty, FileIO, Schema(), "")  # type: ignore[arg-type]
    plan = plan_schema(target, stream, mode="evolve")
    if not plan.schema.fields:
        raise SchemaMismatchError(
            f"the stream has no column that table {name} could be created with: its columns are "
            f"{', '.join(repr(field.name) for field in stream) or 'none'}",
            differences=("there is no column with a type",),
        )
    return plan


def _staged(transaction: CreateTableTransaction) -> StagedTable:
    staged = table_of(transaction)
    assert isinstance(staged, StagedTable)
    return staged
