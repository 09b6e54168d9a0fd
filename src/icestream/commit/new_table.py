"""A table that its first load creates.

The table is not in the catalog until the load is committed. So a failed load leaves no empty table
that somebody would have to drop. When two loads create the same table, the second one fails.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

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

from icestream.catalogs._pyiceberg.commits import interrupts
from icestream.catalogs._pyiceberg.staging import discard_staged, settle_staged, table_of
from icestream.catalogs.file_access import without_catalog_secrets
from icestream.catalogs.lookup import not_created
from icestream.catalogs.redaction import error_text
from icestream.commit.outcome.retry import Backoff
from icestream.commit.outcome.unknown_outcome import CommitRequests
from icestream.errors import (
    CatalogError,
    CommitConflictError,
    CommitError,
    CommitUnknownError,
    InvalidArgumentError,
    SchemaMismatchError,
)
from icestream.report.write_report import WriteReport
from icestream.write.partition.spec_text import partition_spec, sort_order
from icestream.write.schema.schema_plan import SchemaPlan, plan_schema
from icestream.write.target import WriteTarget


class TableCreatedError(CommitConflictError):
    """Somebody else created the table concurrently."""


class Creation(CreateTableTransaction):
    """A transaction for `NewTable.create`, which reports the outcome to the staged changes."""


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that is not in its catalog yet: plain data.

    Attributes:
        identifier: Its name.
        metadata: Its metadata, without a snapshot.
        metadata_location: The path of its first metadata file.
        io: Opens its files.
        discarded: Columns of the stream that are skipped because they have no type.
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
        """Plan a table with a stream's columns. All columns are optional.

        Args:
            catalog: The catalog to create it in.
            name: Its name, such as `"db.t"`.
            stream: The stream's schema.
            partition_by: Texts such as `"day(ts)"`: see `icestream.write.partition.spec_text`.
            sort_by: Texts such as `"price desc"`.
            properties: The table's properties.

        Raises:
            SchemaMismatchError: If Iceberg has no type for a column.
            InvalidArgumentError: If the texts do not fit the columns.
            CatalogError: If the catalog refuses the table.
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
            raise not_created(name, error, catalog) from error
        staged = table_of(transaction)
        assert isinstance(staged, StagedTable)
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
                f"{self.name} does not exist yet and has no branch {branch!r}: omit branch"
            )

    def table(self, catalog: Catalog) -> StagedTable:
        """The table for PyIceberg. It can't be refreshed or scanned."""
        return StagedTable(self.identifier, self.metadata, self.metadata_location, self.io, catalog)

    def transaction(self, catalog: Catalog) -> Creation:
        """A transaction to stage the first load in, for `create`."""
        return Creation(self.table(catalog))

    def create_with(
        self, catalog: Catalog, write: Callable[[Creation], WriteReport]
    ) -> WriteReport:
        """Create the table and make its first write in one commit; raises the errors of `create`.

        Args:
            catalog: The catalog to create it in.
            write: Stages the write in a transaction.
        """
        transaction = self.transaction(catalog)
        report = write(transaction)
        self.create(transaction, catalog, report.snapshot_id)
        return report

    def create(self, transaction: Creation, catalog: Catalog, snapshot_id: int | None) -> Table:
        """Commit the transaction that creates the table.

        Args:
            transaction: From `transaction`, with the first load staged in it.
            catalog: The catalog to create it in.
            snapshot_id: The load's snapshot; None if nothing was staged.

        Raises:
            TableCreatedError: If somebody else created the table.
            CommitUnknownError: If it is not known whether the table was created.
            CommitError: If the catalog refused.
        """
        requests = CommitRequests(catalog, self.name, MAIN_BRANCH, snapshot_id or 0)
        look = partial(self._look, catalog, requests, snapshot_id)
        try:
            with interrupts(), requests.sending(None, self.metadata.next_sequence_number()):
                created = transaction.commit_transaction()
        except Exception as error:
            created = self._created_after(error, transaction, requests, look)
        except BaseException:
            with contextlib.suppress(Exception):
                if look() is None and not requests.may_be_in_table:
                    discard_staged(transaction)
            raise
        settle_staged(transaction)
        return created

    def _created_after(
        self,
        error: Exception,
        transaction: Creation,
        requests: CommitRequests,
        look: Callable[[], Table | None],
    ) -> Table:
        """The table, if it was created despite an error."""
        text = error_text(error, table_of(transaction).catalog.properties)
        backoff = Backoff.of(self.metadata.properties)
        try:
            created = requests.settle(error, look, backoff)
        except TableCreatedError:
            discard_staged(transaction)
            raise
        except CommitUnknownError as unknown:
            raise CommitUnknownError(
                f"the catalog did not say whether {self.name} was created ({text}). No file was "
                "deleted: check whether the table exists",
                snapshot_id=unknown.snapshot_id,
            ) from unknown.__cause__
        if created is not None:
            return created
        discard_staged(transaction)
        raise CommitError(f"the catalog did not create {self.name}: {text}") from error

    def _look(
        self, catalog: Catalog, requests: CommitRequests, snapshot_id: int | None
    ) -> Table | None:
        """The table, if it exists.

        Raises:
            TableCreatedError: If somebody else's table exists, so that this one can't be created.
        """
        try:
            table = catalog.load_table(self.identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            requests.note_absence(None)
            return None
        has_our_load = snapshot_id is not None and table.metadata.snapshot_by_id(snapshot_id)
        if has_our_load or table.metadata.table_uuid == self.metadata.table_uuid:
            return table
        raise TableCreatedError(
            f"{self.name} was created concurrently by somebody else. Nothing was changed; load "
            "again, into that table"
        )


def new_table_schema(name: str, stream: pa.Schema, properties: Mapping[str, str]) -> SchemaPlan:
    """The schema of a new table: the stream's columns, added to an empty schema.

    Raises:
        SchemaMismatchError: If Iceberg has no type for a column.
        InvalidArgumentError: If the format version can't be written.
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
