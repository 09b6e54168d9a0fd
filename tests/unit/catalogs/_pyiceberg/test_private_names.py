"""The private names of PyIceberg that we use: what they do, and that one package alone has them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import pack
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.avro.file import AvroFile
from pyiceberg.avro.reader import DoubleReader
from pyiceberg.catalog import rest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ValidationException,
)
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    In,
    IsNaN,
    IsNull,
    LessThan,
    Not,
    NotEqualTo,
    NotNull,
    StartsWith,
)
from pyiceberg.io import fsspec
from pyiceberg.io.fsspec import FsspecFileIO, S3V4RestSigner
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    write_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    SetPropertiesUpdate,
    UpdatesAndRequirements,
)
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, StructType
from requests import Session

import icestream
from icestream.catalogs._pyiceberg import commits, manifests, staging, stores, timeouts
from icestream.errors import CommitConflictError, CommitError
from tests.support.delete_files import (
    write_position_deletes,
)
from tests.support.tables import add_parquet_file, data_file_paths, data_files, make_catalog

_SOURCE = Path(icestream.__file__).parent
_PACKAGE = _SOURCE / "catalogs" / "_pyiceberg"
_PRIVATE_USERS = sorted(_PACKAGE.glob("[a-z]*.py"))
_OTHERS = [path for path in sorted(_SOURCE.rglob("*.py")) if path.parent != _PACKAGE]

# `_buffer_size`, by `unbuffered_output`


def test_an_unbuffered_output_is_in_the_file_at_once(tmp_path: Path) -> None:
    with stores.unbuffered_output(PyArrowFileIO(), f"file://{tmp_path}/x").create() as stream:
        stream.write(b"abc")
        assert (tmp_path / "x").read_bytes() == b"abc"
    with PyArrowFileIO().new_output(f"file://{tmp_path}/y").create() as stream:
        stream.write(b"abc")
        assert (tmp_path / "y").read_bytes() == b""


# `_initialize_fs` and `_thread_locals`, by `forget_file_systems`


def test_file_access_makes_its_file_systems_by_its_properties_and_keeps_them() -> None:
    io = PyArrowFileIO({"s3.region": "eu", "s3.access-key-id": "a", "s3.secret-access-key": "b"})
    before = io.fs_by_scheme("s3", "bucket")
    io.properties = {**io.properties, "s3.access-key-id": "c"}
    assert io.fs_by_scheme("s3", "bucket") is before
    stores.forget_file_systems(io)
    assert io.fs_by_scheme("s3", "bucket") is not before
    assert not io.fs_by_scheme("s3", "bucket").equals(before)
    local = FsspecFileIO({})
    kept = local._thread_locals
    local.get_fs("file")
    assert hasattr(kept, "get_fs_cached")
    stores.forget_file_systems(local)
    assert not hasattr(local._thread_locals, "get_fs_cached")


# `_session`, by `limit_waits`, and the module's `Session`, by `limited_catalog`


def test_a_rest_catalog_asks_by_one_session_that_its_module_makes() -> None:
    asked: list[Any] = []

    class Refusing(Session):
        def send(self, request: Any, **options: Any) -> Any:
            asked.append(options["timeout"])
            raise ConnectionError

    with mock.patch.object(rest, "Session", Refusing), pytest.raises(ConnectionError):
        rest.RestCatalog("far", uri="http://127.0.0.1:1")
    assert asked == [None], "PyIceberg has timeouts now: leave them to it"
    with mock.patch.object(rest.RestCatalog, "_fetch_config"):
        catalog = rest.RestCatalog("far", uri="http://127.0.0.1:1")
    assert type(catalog._session) is Session
    timeouts.limit_waits(catalog)
    assert isinstance(catalog._session, Session)
    assert catalog._session.limits == (10.0, 60.0)  # type: ignore[attr-defined]


def test_tokens_are_asked_for_by_the_requests_of_their_module() -> None:
    asked = mock.Mock()
    asked.post.return_value.json.return_value = {"access_token": "hush", "expires_in": 9}
    with mock.patch.object(rest.auth, "requests", asked):
        provider = rest.auth.OAuth2TokenProvider("me", "hush", "http://127.0.0.1:1")
        assert provider.get_token() == "hush"
    assert "timeout" not in asked.post.call_args.kwargs, "PyIceberg has timeouts now"


# `_client`, `_HiveClient`, `_init_thrift_transport` and `_transport`, by `limit_waits`


def test_a_hive_catalog_asks_by_one_client_that_makes_its_transports() -> None:
    pytest.importorskip("thrift")
    from pyiceberg.catalog.hive import HiveCatalog

    catalog = HiveCatalog("far", uri="thrift://127.0.0.1:1")
    before = _sockets(catalog._client._transport)
    assert [each._timeout for each in before] == [None], "PyIceberg has timeouts now"
    timeouts.limit_waits(catalog)
    assert [each._timeout for each in before] == [60.0]
    made = _sockets(catalog._client._init_thrift_transport())
    assert [each._timeout for each in made] == [60.0]


def _sockets(transport: Any) -> list[Any]:
    return [part for part in vars(transport).values() if hasattr(part, "setTimeout")]


# `_scheme_to_fs`, `_s3` and `_session`, by `limit_signing`


def test_a_signer_asks_by_a_session_without_a_limit() -> None:
    signer = S3V4RestSigner({"uri": "http://127.0.0.1:1"})
    assert type(signer._session) is Session
    io = FsspecFileIO({"s3.signer": "S3V4RestSigner"})
    assert {io._scheme_to_fs[each] for each in ("s3", "s3a", "s3n")} == {fsspec._s3}
    timeouts.limit_signing(io)
    assert {io._scheme_to_fs[each] for each in ("s3", "s3a", "s3n")} == {timeouts.limited_s3}
    other = FsspecFileIO({})
    timeouts.limit_signing(other)
    assert other._scheme_to_fs["s3"] is fsspec._s3, "others are left alone"


# `_InclusiveMetricsEvaluator`, by `metrics_evaluator`


@dataclass
class _Metrics:
    """Field 1: longs 10 to 20. Field 2: strings "b" to "d", two null. Field 3: three NaN."""

    record_count: int = 5
    value_counts: dict[int, int] = field(default_factory=lambda: {1: 5, 2: 5, 3: 5, 4: 5})
    null_value_counts: dict[int, int] = field(default_factory=lambda: {1: 0, 2: 2, 3: 0, 4: 5})
    nan_value_counts: dict[int, int] = field(default_factory=lambda: {3: 0})
    lower_bounds: dict[int, bytes] = field(
        default_factory=lambda: {1: to_bytes(LongType(), 10), 2: b"b"}
    )
    upper_bounds: dict[int, bytes] = field(
        default_factory=lambda: {1: to_bytes(LongType(), 20), 2: b"d"}
    )


_SCHEMA = Schema(
    NestedField(1, "n", LongType()),
    NestedField(2, "s", StringType()),
    NestedField(3, "d", DoubleType()),
    NestedField(4, "nothing", LongType()),
    NestedField(5, "unknown", LongType()),
)


@pytest.mark.parametrize(
    ("where", "might_match"),
    [
        (EqualTo("n", 15), True),
        (EqualTo("n", 9), False),
        (GreaterThan("n", 20), False),
        (LessThan("n", 11), True),
        (In("n", [1, 2, 3]), False),
        (In("n", [1, 12]), True),
        (Not(LessThan("n", 21)), False),
        (NotEqualTo("n", 15), True),
        (IsNull("n"), False),
        (IsNull("s"), True),
        (NotNull("nothing"), False),
        (IsNaN("d"), False),
        (StartsWith("s", "c"), True),
        (StartsWith("s", "x"), False),
        (And(EqualTo("n", 15), StartsWith("s", "x")), False),
        (EqualTo("unknown", 5), True),
        (IsNull("unknown"), True),
    ],
    ids=str,
)
def test_the_metrics_evaluator_takes_our_row_groups_and_rules_them_out(
    where: BooleanExpression, might_match: bool
) -> None:
    test = manifests.metrics_evaluator(_SCHEMA, where, True)
    assert test(_Metrics()) is might_match


def test_the_metrics_evaluator_matches_names_by_case_as_told() -> None:
    where = EqualTo("N", 9)
    assert manifests.metrics_evaluator(_SCHEMA, where, False)(_Metrics()) is False
    with pytest.raises(ValueError, match="Could not find field"):
        manifests.metrics_evaluator(_SCHEMA, where, True)


def test_the_metrics_evaluator_keeps_no_state_between_row_groups() -> None:
    """Worker threads share one."""
    test = manifests.metrics_evaluator(_SCHEMA, EqualTo("n", 15), True)
    other = _Metrics(lower_bounds={1: to_bytes(LongType(), 16)})
    assert [test(_Metrics()), test(other), test(_Metrics())] == [True, False, True]
    assert test(_Metrics(record_count=0)) is False


# `_apply` of `UpdateSchema`, by `evolved_schema`


def test_a_schema_is_evolved_without_a_catalog_as_a_real_update_would(tmp_path: Path) -> None:
    catalog: SqlCatalog = make_catalog(tmp_path)
    table = catalog.create_table("db.t", _SCHEMA)

    def change(update: UpdateSchema) -> None:
        update.add_column("new", StructType(NestedField(1, "x", LongType())))
        update.make_column_optional("n")

    planned = commits.evolved_schema(table.metadata, table.schema(), [change])
    with table.update_schema() as update:
        change(update)
    assert (planned.schema_id, planned.fields) == (table.schema().schema_id, table.schema().fields)
    further = commits.evolved_schema(
        table.metadata, planned, [lambda update: update.add_column("more", LongType())]
    )
    assert (further.schema_id, further.highest_field_id) == (2, planned.highest_field_id + 1)
    catalog.close()


# `_StrictMetricsEvaluator`, by `strict_metrics_evaluator`


@pytest.mark.parametrize(
    ("where", "all_match"),
    [
        (GreaterThan("n", 9), True),
        (GreaterThan("n", 10), False),
        (LessThan("n", 21), True),
        (EqualTo("n", 15), False),
        (In("n", [10, 20]), False),
        (NotNull("n"), True),
        (NotNull("s"), False),
        (GreaterThan("s", "a"), False),
        (IsNull("nothing"), True),
        (IsNull("unknown"), False),
        (NotNull("unknown"), False),
        (GreaterThan("unknown", 0), False),
        (And(GreaterThan("n", 9), NotNull("n")), True),
        (NotEqualTo("nothing", 5), True),  # Null is taken to differ: we ask for not null as well.
        (And(NotNull("nothing"), NotEqualTo("nothing", 5)), False),
    ],
    ids=str,
)
def test_the_strict_evaluator_says_when_all_rows_match(
    where: BooleanExpression, all_match: bool
) -> None:
    test = manifests.strict_metrics_evaluator(_SCHEMA, where)
    assert test(_Metrics()) is all_match  # type: ignore[arg-type]


# `DoubleReader`, by `exact_manifests`


def test_doubles_are_read_exactly_only_while_it_is_asked_for() -> None:
    def read() -> float:
        return DoubleReader().read(StreamingBinaryDecoder(pack("<d", 0.1)))

    before = DoubleReader.read
    with manifests.exact_manifests():
        with manifests.exact_manifests():
            assert read() == 0.1
        assert read() == 0.1
    assert DoubleReader.read is before


# `content` and `_meta` of `ManifestWriterV2`, by `DeleteManifestWriter`


def test_a_manifest_of_delete_files_says_so(tmp_path: Path) -> None:
    catalog: SqlCatalog = make_catalog(tmp_path)
    table = catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())))
    add_parquet_file(table, pa.table({"id": [1, 2, 3]}))
    (file,) = write_position_deletes(table, data_files(table), {data_file_paths(table)[0]: [0]})
    output = table.io.new_output(f"{table.location()}/metadata/deletes.avro")
    arguments = (table.spec(), table.schema(), output, 77, "null")
    with manifests.DeleteManifestWriter(*arguments) as writer:
        writer.add(ManifestEntry.from_args(snapshot_id=77, data_file=file))
    manifest = writer.to_manifest_file()
    assert manifest.content == ManifestContent.DELETES
    manifest.sequence_number = 5
    (entry,) = manifest.fetch_manifest_entry(table.io)
    assert entry.data_file.content == DataFileContent.POSITION_DELETES
    with AvroFile[ManifestEntry](output.to_input_file()) as reader:
        assert reader.header.meta["content"] == "deletes"
        assert reader.header.meta["format-version"] == "2"
    catalog.close()


# `_writer` of `ManifestWriter` and `ManifestListWriter`, by `written`


@pytest.mark.parametrize("kind", ["manifest", "list"])
def test_a_manifest_that_could_not_be_written_is_closed(tmp_path: Path, kind: str) -> None:
    catalog: SqlCatalog = make_catalog(tmp_path)
    table = catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())))
    output = table.io.new_output(f"{table.location()}/metadata/{kind}.avro")
    writer: Any = (
        manifests.DeleteManifestWriter(table.spec(), table.schema(), output, 77, "null")
        if kind == "manifest"
        else write_manifest_list(2, output, 77, None, 1, "null")
    )
    with pytest.raises(KeyboardInterrupt), manifests.written(writer):
        raise KeyboardInterrupt
    assert writer._writer.output_stream.closed
    catalog.close()


def test_a_manifest_without_entries_is_refused_and_closed(tmp_path: Path) -> None:
    catalog: SqlCatalog = make_catalog(tmp_path)
    table = catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())))
    output = table.io.new_output(f"{table.location()}/metadata/m.avro")
    writer: Any = manifests.DeleteManifestWriter(table.spec(), table.schema(), output, 77, "null")
    with pytest.raises(ValueError, match="empty"), manifests.written(writer):
        pass
    assert writer._writer.output_stream.closed
    catalog.close()


# `_do_commit` of `Table`, by `commit_to_catalog`


def test_a_commit_is_sent_once_and_the_table_object_knows_it(tmp_path: Path) -> None:
    catalog: SqlCatalog = make_catalog(tmp_path)
    properties = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
    }
    table = catalog.create_table("db.t", _SCHEMA, properties=properties)
    for number in range(4):
        updates = (SetPropertiesUpdate(updates={"n": str(number)}),)
        commits.commit_to_catalog(table, updates, ())
        assert table.properties["n"] == str(number)
        assert table.metadata_location == catalog.load_table("db.t").metadata_location
    # Old metadata is deleted, as the table asks for: two are left.
    folder = Path(table.metadata_location.removeprefix("file://")).parent
    assert len(list(folder.glob("*.metadata.json"))) == 2
    failing = mock.patch.object(catalog, "commit_table", side_effect=CommitFailedException("no"))
    with failing as commit, pytest.raises(CommitFailedException):
        commits.commit_to_catalog(table, updates, ())
    assert commit.call_count == 1
    catalog.close()


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


# One module alone


def _is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def _private_uses(source: str) -> list[str]:
    """Private names imported from PyIceberg, and private attributes of what came from it."""
    tree = ast.parse(source)
    found: list[str] = []
    ours: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pyiceberg":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.extend(name for name in names if _is_private(name))
            ours.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names if a.name.split(".")[0] == "pyiceberg"]
            found.extend(name for name in names if _is_private(name))
            ours.update("pyiceberg" for _ in names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            root: ast.expr = node.value
            while isinstance(root, (ast.Attribute, ast.Call, ast.Subscript)):
                root = root.func if isinstance(root, ast.Call) else root.value
            if isinstance(root, ast.Name) and root.id in ours:
                found.append(ast.unparse(node))
    return found


_OF_PYSPARK = ("_jdf", "_jsc", "_jvm")  # the only ways from PySpark to the JVM
_PUBLIC = ("os._exit",)  # documented by Python, in spite of the underscore


def _private_attributes_of_others(source: str) -> list[str]:
    """Private attributes of anything but `self`, `cls` and the module's own classes."""
    tree = ast.parse(source)
    defined = {
        target.attr
        for node in ast.walk(tree)
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute)
    }
    defined |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and _is_private(node.attr)
        and node.attr not in defined
        and node.attr not in _OF_PYSPARK
        and ast.unparse(node) not in _PUBLIC
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]


def test_the_search_finds_private_names_however_they_are_reached() -> None:
    assert _private_uses("from pyiceberg.io.pyarrow import _x, y") == ["pyiceberg.io.pyarrow._x"]
    assert _private_uses("from pyiceberg._hidden import y") == ["pyiceberg._hidden.y"]
    assert _private_uses("import pyiceberg._hidden") == ["pyiceberg._hidden"]
    assert _private_uses("import pyiceberg.io\npyiceberg.io._x") == ["pyiceberg.io._x"]
    assert _private_uses("from pyiceberg.table import T\nT(1)._y") == ["T(1)._y"]
    assert _private_uses("from pyiceberg.table import T as U\nU.a[0]._y") == ["U.a[0]._y"]
    assert _private_uses("from pyiceberg.table import T\nT.__name__; self._y") == []
    assert _private_attributes_of_others("def f(table):\n    return table._metadata") == [
        "table._metadata"
    ]
    assert _private_attributes_of_others("self._a = 1\nother._a") == []
    assert _private_attributes_of_others("os._exit(1); os._other(1)") == ["os._other"]


@pytest.mark.parametrize("module", _OTHERS, ids=lambda path: str(path.relative_to(_SOURCE)))
def test_no_other_module_touches_private_names_of_pyiceberg(module: Path) -> None:
    source = module.read_text()
    assert _private_uses(source) == []
    assert _private_attributes_of_others(source) == []


def test_every_private_name_that_is_used_is_tested_here() -> None:
    sources = [module.read_text() for module in _PRIVATE_USERS]
    used = [
        name
        for source in sources
        for name in (*_private_uses(source), *_private_attributes_of_others(source))
    ]
    here = Path(__file__).read_text()
    assert len(used) > 5
    for name in used:
        assert f"`{name.rsplit('.', 1)[-1]}`" in here
