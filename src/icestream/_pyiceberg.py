"""The one module that touches PyIceberg's private names.

Each name used here has a test in tests/unit/test_pyiceberg_private_names.py that fails when
PyIceberg changes it, so that moving to a new minor version is a matter of mending this file.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache
from struct import unpack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

from pydantic_core import PydanticSerializationError
from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.reader import DoubleReader
from pyiceberg.exceptions import ValidationException
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator, _StrictMetricsEvaluator
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestWriterV2
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    TableRequirement,
    TableUpdate,
    UpdatesAndRequirements,
)
from pyiceberg.table.update.schema import UpdateSchema

from icestream.errors import CommitConflictError, CommitError, InvalidArgumentError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_read_double = DoubleReader.read
_exact_users = 0
_exact_lock = threading.Lock()


def _read_double_exactly(_: DoubleReader, decoder: BinaryDecoder) -> float:
    value: float = unpack("<d", decoder.read(8))[0]
    return value


@contextmanager
def exact_manifests() -> Iterator[None]:
    """Have PyIceberg read doubles in manifests, which are partition values, as they are.

    Its decoder makes floats of them: 0.1 becomes 0.10000000149. This holds for the whole process
    while it lasts, since the threads that read manifests are PyIceberg's.
    """
    global _exact_users
    with _exact_lock:
        _exact_users += 1
        DoubleReader.read = _read_double_exactly  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        with _exact_lock:
            _exact_users -= 1
            if not _exact_users:
                DoubleReader.read = _read_double  # type: ignore[method-assign]


class Metrics(Protocol):
    """What the metrics evaluator reads; a `DataFile` has it, and so does a row group of ours."""

    record_count: int
    value_counts: dict[int, int]
    null_value_counts: dict[int, int]
    nan_value_counts: dict[int, int]
    lower_bounds: dict[int, bytes]
    upper_bounds: dict[int, bytes]


def metrics_evaluator(
    schema: Schema,
    row_filter: BooleanExpression,
    case_sensitive: bool,
    *,
    include_empty_files: bool = False,
) -> Callable[[Metrics], bool]:
    """A function that says whether rows with such metrics might match the filter."""
    evaluate: Callable[..., bool] = _InclusiveMetricsEvaluator(
        schema, row_filter, case_sensitive, include_empty_files
    ).eval
    return evaluate


def strict_metrics_evaluator(
    schema: Schema, row_filter: BooleanExpression
) -> Callable[[DataFile], bool]:
    """A function that says whether all rows of a file match, as far as its metrics tell."""
    evaluate: Callable[[DataFile], bool] = _StrictMetricsEvaluator(schema, row_filter, True).eval
    return evaluate


def equality_delete_paths(snapshot: Snapshot, io: FileIO) -> list[str]:
    """The equality delete files of a snapshot."""
    return [
        entry.data_file.file_path
        for manifest in snapshot.manifests(io)
        if manifest.content == ManifestContent.DELETES
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)
        if entry.data_file.content == DataFileContent.EQUALITY_DELETES
    ]


def unbuffered_output(io: FileIO, location: str) -> OutputFile:
    """A file to write whose stream is the store's own.

    PyIceberg puts a buffer before it, and flushing the buffer does not flush the store's stream.
    """
    output = io.new_output(location)
    if isinstance(output, PyArrowFile):
        output._buffer_size = 0
    return output


class DeleteManifestWriter(ManifestWriterV2):
    """Writes a manifest of delete files; PyIceberg's own writers know data files only."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


@contextmanager
def interrupts() -> Iterator[None]:
    """Raise an interrupt again that pydantic has turned into an error of its own.

    PyIceberg writes JSON with pydantic, which wraps everything that is raised while it serializes,
    Ctrl-C as well.

    Raises:
        KeyboardInterrupt: If Ctrl-C was pressed in that moment.
        SystemExit: If a signal handler ended the program in that moment.
    """
    try:
        yield
    except PydanticSerializationError as error:
        for kind in (KeyboardInterrupt, SystemExit):
            if f": {kind.__name__}" in str(error):
                raise kind from error
        raise


def commit_to_catalog(
    table: Table, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...]
) -> None:
    """Commit once, without retries; the table object then has the new metadata.

    `Table` has no public way that also deletes old metadata files where the table asks for it.
    """
    with interrupts():
        table._do_commit(updates, requirements)


def evolved_schema(
    metadata: TableMetadata, base: Schema, changes: Iterable[Callable[[UpdateSchema], object]]
) -> Schema:
    """The schema that an update of `base` would commit, worked out without a catalog.

    Args:
        metadata: The table, which knows the last column id, all schemas and all partition specs.
        base: The schema that is changed: the table's current one, or one evolved from it.
        changes: What is done to the update, in order.

    Raises:
        ValueError: If a change is refused.
    """
    schemas = [*metadata.schemas]
    if base not in schemas:
        schemas.append(base)
    as_if = SimpleNamespace(schema=lambda: base, schemas=schemas)
    as_if.partition_specs = metadata.partition_specs
    as_if.last_column_id = max(metadata.last_column_id, base.highest_field_id)
    transaction: Any = SimpleNamespace(table_metadata=as_if)
    update = UpdateSchema(transaction)
    for change in changes:
        change(update)
    return update._apply()


class StagedHooks(Protocol):
    """What a transaction asks of a change that is staged in it."""

    @property
    def makes_snapshot(self) -> bool:
        """Whether it is a snapshot; or only a look at what others have done."""
        ...

    @property
    def snapshot_id(self) -> int: ...

    @property
    def base_snapshot_id(self) -> int | None: ...

    @property
    def branch(self) -> str: ...

    def lasting(self, metadata: TableMetadata) -> UpdatesAndRequirements: ...

    def produce(self, metadata: TableMetadata) -> UpdatesAndRequirements: ...

    def landed(self) -> None: ...

    def failed(self, error: BaseException | None) -> None:
        """The transaction says that it was refused: see whether that is so."""
        ...

    def discard(self) -> None:
        """The transaction was refused for certain."""
        ...


class StagedConflictError(CommitConflictError, ValidationException):
    """A staged change was refused beside another one; the transaction deletes all its files."""


class StagedCommitError(CommitError, ValidationException):
    """A staged change could not be prepared; the transaction deletes all its files."""


class _StagedProducer:
    """The part of a PyIceberg snapshot producer that `Transaction` uses."""

    def __init__(self, hooks: StagedHooks, transaction: Transaction) -> None:
        self._hooks = hooks
        self._transaction = transaction
        self._starting_snapshot_id = hooks.base_snapshot_id
        self._target_branch = hooks.branch
        self._commit_window: object = None

    def _refresh_for_retry(self) -> None:
        """The hooks look at the metadata anew each time."""

    @property
    def makes_snapshot(self) -> bool:
        return self._hooks.makes_snapshot

    @property
    def _snapshot_id(self) -> int:
        """The snapshot whose presence tells PyIceberg that the transaction was committed."""
        for producer in () if self.makes_snapshot else self._transaction._snapshot_producers:
            if not isinstance(producer, _StagedProducer) or producer.makes_snapshot:
                return producer._snapshot_id
        return self._hooks.snapshot_id

    def _validate_concurrency(self) -> None:
        """Snapshots are validated when they are produced."""
        if not self.makes_snapshot:
            self._produced()

    def _produced(self) -> UpdatesAndRequirements:
        try:
            return self._hooks.produce(self._transaction.table_metadata)
        except CommitConflictError as error:
            raise StagedConflictError(str(error)) from error
        except CommitError as error:
            raise StagedCommitError(str(error)) from error

    def _commit(self) -> UpdatesAndRequirements:
        updates, requirements = self._produced()
        # A transaction keeps one requirement of each type: a second branch's would be dropped.
        staged = self._transaction._requirements
        asserted = {r.ref for r in staged if isinstance(r, AssertRefSnapshotId)}
        self._transaction._requirements += tuple(
            r
            for r in requirements
            if asserted and isinstance(r, AssertRefSnapshotId) and r.ref not in asserted
        )
        return updates, requirements

    def _cleanup_uncommitted(self) -> None:
        self._hooks.landed()

    def _clean_all_uncommitted(self) -> None:
        self._hooks.failed(sys.exception())

    def discard(self) -> None:
        self._hooks.discard()


def table_of(transaction: Transaction) -> Table:
    """The table that a transaction is about."""
    return transaction._table


def discard_staged(transaction: Transaction) -> None:
    """Tell the changes staged in a transaction that creates its table that it was refused.

    PyIceberg tells the changes of other transactions itself.
    """
    for producer in transaction._snapshot_producers:
        if isinstance(producer, _StagedProducer):
            producer.discard()


def settle_staged(transaction: Transaction) -> None:
    """Tell the changes staged in a transaction that creates its table that it was committed."""
    for producer in transaction._snapshot_producers:
        producer._cleanup_uncommitted()


def stage(transaction: Transaction, hooks: StagedHooks) -> None:
    """Stage a change in a transaction, which commits and retries it with the rest.

    If it raises, the transaction is as it was.
    """
    before = transaction._updates, transaction._requirements
    producer = _StagedProducer(hooks, transaction)
    try:
        updates, requirements = hooks.lasting(transaction.table_metadata)
        if any(isinstance(r, AssertCurrentSchemaId) for r in transaction._requirements):
            requirements = ()  # the schema was changed in the transaction before: asserted there
        transaction._stage(updates, requirements)
        updates, requirements = producer._commit()
    except BaseException:
        transaction._updates, transaction._requirements = before
        raise
    transaction._register_snapshot_producer(producer)  # type: ignore[arg-type]
    transaction._apply(updates, requirements)


# The names are those of Iceberg's Java client; PyIceberg has none, and waits for ever.
CONNECT_TIMEOUT = "rest.client.connection-timeout-ms"
ANSWER_TIMEOUT = "rest.client.socket-timeout-ms"
_CONNECT_TIMEOUT_MS, _ANSWER_TIMEOUT_MS = 10_000, 60_000
_REST = "pyiceberg.catalog.rest"
_Limits = tuple[float | None, float | None]


class _Waits(threading.local):
    """The limits for the sessions that this thread makes."""

    limits: _Limits | None = None


_waits = _Waits()
_limited_users = 0
_limited_lock = threading.Lock()


@cache
def _limited_session() -> type[Any]:
    """A session whose requests end if the server does not answer.

    Made when it is needed: workers, which ask no catalog, do without `requests`.
    """
    import requests
    from pyiceberg.catalog.rest import auth

    module: Any = auth

    class LimitedSession(requests.Session):
        limits: _Limits | None = None

        def prepare_request(self, request: requests.Request) -> requests.PreparedRequest:
            before, _waits.limits = _waits.limits, self.limits or _waits.limits
            try:
                return super().prepare_request(request)  # It may ask for a token.
            finally:
                _waits.limits = before

        def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
            if kwargs.get("timeout") is None:
                kwargs["timeout"] = self.limits or _waits.limits
            return super().send(request, **kwargs)

    class LimitedRequests:
        """`requests`, for the one request that PyIceberg makes without its session."""

        def post(self, url: str, **options: Any) -> requests.Response:
            with LimitedSession() as session:
                return session.post(url, **options)

    module.requests = LimitedRequests()
    return LimitedSession


@contextmanager
def limited_catalog(properties: Mapping[str, str]) -> Iterator[None]:
    """Have a REST catalog that is opened meanwhile wait for its server no longer than it should.

    Args:
        properties: What is known of the catalog before it is opened.

    Raises:
        InvalidArgumentError: If a limit is not a number.
    """
    global _limited_users
    is_rest = properties.get("type", "rest") == "rest"
    if not is_rest or not str(properties.get("uri", "")).startswith("http"):
        yield
        return
    from pyiceberg.catalog import rest

    module: Any = rest
    before, _waits.limits = _waits.limits, _limits_of(properties)
    with _limited_lock:
        _limited_users += 1
        module.Session = _limited_session()
    try:
        yield
    finally:
        _waits.limits = before
        with _limited_lock:
            _limited_users -= 1
            if not _limited_users:
                module.Session = _limited_session().__base__


def limit_waits(catalog: Catalog | None) -> None:
    """Have a REST catalog that is open wait for its server no longer than its properties say.

    Raises:
        InvalidArgumentError: If a limit is not a number.
    """
    rest = sys.modules.get(_REST)  # else there is none
    if rest is None or not isinstance(catalog, rest.RestCatalog):
        return
    limited, session = _limited_session(), catalog._session
    if type(session) is limited.__base__:
        session.__class__ = limited
    if isinstance(session, limited):
        session.limits = _limits_of(catalog.properties)


def _limits_of(properties: Mapping[str, str]) -> _Limits:
    """Seconds to connect, and between two bytes of an answer; None without a limit."""
    return (
        _seconds(properties, CONNECT_TIMEOUT, _CONNECT_TIMEOUT_MS),
        _seconds(properties, ANSWER_TIMEOUT, _ANSWER_TIMEOUT_MS),
    )


def _seconds(properties: Mapping[str, str], name: str, default_ms: int) -> float | None:
    given = properties.get(name, default_ms)
    try:
        milliseconds = int(given)
    except (TypeError, ValueError):
        milliseconds = -1
    if milliseconds < 0:
        raise InvalidArgumentError(
            f"the catalog's property {name} is {given!r}: give milliseconds, or 0 for no limit"
        )
    return milliseconds / 1000 or None


def timeout_text(error: BaseException, properties: Mapping[str, str]) -> str | None:
    """What to say of a catalog that did not answer in time; None if it is about something else."""
    requests = sys.modules.get("requests")
    if requests is None or not isinstance(error, requests.Timeout):
        return None
    connect, answer = _limits_of(properties)
    if isinstance(error, requests.ConnectTimeout):
        return f"no connection within {connect:g} s: raise {CONNECT_TIMEOUT} if it takes longer"
    return f"no answer within {answer:g} s: raise {ANSWER_TIMEOUT} if it takes longer"


def forget_file_systems(io: FileIO) -> None:
    """Have file access make its file systems anew, with the properties that it has now."""
    if isinstance(io, PyArrowFileIO):
        io.fs_by_scheme = lru_cache(io._initialize_fs)
    elif hasattr(io, "_thread_locals"):
        io._thread_locals = threading.local()  # of fsspec
