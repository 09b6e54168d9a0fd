"""Servers that accept a request and never answer: an error after a time that can be set."""

from __future__ import annotations

import pickle
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog, rest
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from requests import ReadTimeout, Session

import icestream as ice
from icestream.catalogs.credentials import access_to
from icestream.catalogs.lookup import list_tables, load_table, open_catalog
from icestream.commit.outcome.retry import Outcome, classify
from icestream.pipeline.inputs import postgres_source
from icestream.pipeline.request.source_spec import SourceSpec
from tests.support.catalogs import make_catalog
from tests.support.s3 import SingleAttempt
from tests.support.silent_server import only_config, silent_server

pytestmark = pytest.mark.timeout(60)

_SHORT = {"rest.client.socket-timeout-ms": "300", "rest.client.connection-timeout-ms": "400"}


def test_opening_a_catalog_that_never_answers_is_an_error() -> None:
    with silent_server() as uri, pytest.raises(ice.CatalogError) as caught:
        open_catalog("far", {"type": "rest", "uri": uri, **_SHORT})
    assert "no answer within 0.3 s: raise rest.client.socket-timeout-ms" in str(caught.value)


def test_a_server_of_tokens_that_never_answers_is_an_error() -> None:
    with silent_server() as silent, silent_server(only_config) as uri:
        oauth2 = {"client_id": "me", "client_secret": "hush", "token_url": silent}
        auth = {"type": "oauth2", "oauth2": oauth2}
        with pytest.raises(ice.CatalogError, match=r"no answer within 0\.3 s") as caught:
            open_catalog("far", {"type": "rest", "uri": uri, "auth": auth, **_SHORT})  # type: ignore[dict-item]
        assert "hush" not in str(caught.value)


def test_loading_and_listing_tables_of_a_catalog_that_falls_silent_are_errors() -> None:
    with silent_server(only_config) as uri:
        catalog = open_catalog("far", {"uri": uri, **_SHORT})
        for ask in (lambda: load_table("db.t", catalog), lambda: list_tables(catalog)):
            with pytest.raises(ice.CatalogError, match=r"no answer within 0\.3 s"):
                ask()


def test_a_catalog_that_the_caller_opened_is_bounded_too(tmp_path: Path) -> None:
    own = make_catalog(tmp_path)
    stored = own.create_table("db.t", pa.schema([("id", pa.int64())]))
    ice.append(stored, pa.table({"id": [1]}))
    own.close()
    with silent_server(only_config) as uri:
        catalog = load_catalog("far", type="rest", uri=uri, **_SHORT)
        table = Table(stored.name(), stored.metadata, stored.metadata_location, stored.io, catalog)
        assert sum(batch.num_rows for batch in ice.scan(table)) == 1, "which asks no catalog"
        for write in (
            lambda: ice.append(table, pa.table({"id": [2]})),
            lambda: ice.delete(table, "id = 1"),
            lambda: ice.compact(table),
        ):
            with pytest.raises(ice.CatalogError, match=r"read timeout=0\.3"):
                write()
        with pytest.raises(Exception, match=r"read timeout=0\.3") as caught:
            table.catalog.commit_table(table, (), ())
        assert classify(caught.value, catalog) is Outcome.UNKNOWN


def test_a_limit_of_zero_is_none_and_text_is_refused() -> None:
    with silent_server(only_config) as uri:
        unlimited = {"rest.client.socket-timeout-ms": "0", "rest.client.connection-timeout-ms": "0"}
        open_catalog("far", {"uri": uri, **unlimited})
        with pytest.raises(ice.InvalidArgumentError, match="socket-timeout-ms is 'soon'"):
            open_catalog("far", {"uri": uri, "rest.client.socket-timeout-ms": "soon"})


def test_other_sessions_of_pyiceberg_are_left_alone() -> None:
    with silent_server(only_config) as uri:
        open_catalog("far", {"uri": uri})
        assert rest.Session is Session


@contextmanager
def _silent_port() -> Iterator[int]:
    """A port that connections are made to, and nothing comes from."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_hive_metastore_that_never_answers_is_an_error() -> None:
    pytest.importorskip("thrift")
    limit = {"hive.client.socket-timeout-ms": "300"}
    with _silent_port() as port:
        catalog = open_catalog("h", {"type": "hive", "uri": f"thrift://127.0.0.1:{port}", **limit})
        for _ in range(2):  # with the first connection, and with one made anew
            with pytest.raises(ice.CatalogError, match=r"no answer within 0\.3 s: raise hive\."):
                load_table("db.t", catalog)
        with pytest.raises(Exception, match="timeout") as caught:
            catalog.list_namespaces()
        assert classify(caught.value, catalog) is Outcome.UNKNOWN


def test_a_postgresql_server_that_never_answers_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("adbc_driver_postgresql")
    monkeypatch.setattr(postgres_source, "_CONNECT_SECONDS", 2)
    with _silent_port() as port:
        url = f"jdbc:postgresql://127.0.0.1:{port}/db"
        for address in (url, f"{url}?application_name=me", f"{url}?connect_timeout=2"):
            source = SourceSpec.parse({"jdbc": address, "table": "t"})
            with pytest.raises(ice.SourceError, match="timeout expired"):
                postgres_source.postgres_schema(source)


class _S3:
    """What PyIceberg needs of s3fs: it hands the signer over."""

    def __init__(self, **_: Any) -> None:
        self.signer: Any = None
        events = SimpleNamespace(unregister=lambda *_, **__: None, register_last=self._take)
        self.s3 = SimpleNamespace(meta=SimpleNamespace(events=events))

    def _take(self, event: str, signer: Any, **_: Any) -> None:
        self.signer = signer


@pytest.mark.parametrize("others", [{}, {"warehouse": "w"}], ids=["as it is", "stripped"])
def test_a_server_of_signatures_that_never_answers_is_an_error(others: dict[str, str]) -> None:
    with silent_server() as uri:
        given = {"s3.signer": "S3V4RestSigner", "uri": uri, "token": "t", **_SHORT, **others}
        io = pickle.loads(pickle.dumps(access_to(FsspecFileIO(given), None, None, "")))
        request = SimpleNamespace(
            method="GET", url="http://bucket/a", headers={}, context={"client_region": "x"}
        )
        with mock.patch.dict(sys.modules, {"s3fs": SimpleNamespace(S3FileSystem=_S3)}):
            for scheme in ("s3", "s3a", "s3n"):
                store = io.get_fs(scheme)
                with pytest.raises(ReadTimeout, match=r"read timeout=0\.3"):
                    store.signer(request)


def _store(endpoint: str) -> PyArrowFileIO:
    return PyArrowFileIO(
        {
            "s3.endpoint": endpoint,
            "s3.access-key-id": "test",
            "s3.secret-access-key": "test",
            "s3.region": "us-east-1",
            "s3.request-timeout": "1",
            "s3.retry-strategy-impl": f"{SingleAttempt.__module__}.{SingleAttempt.__name__}",
        }
    )


@pytest.fixture
def table(tmp_path: Path) -> Table:
    catalog = make_catalog(tmp_path)
    made = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    ice.append(made, pa.table({"id": [1]}))
    catalog.close()
    return made


@pytest.mark.parametrize("sent_bytes", [0, 1000], ids=["silent", "stalls half-way"])
def test_reading_from_a_store_that_never_answers_is_an_error(table: Table, sent_bytes: int) -> None:
    (split,) = ice.scan(table).splits()
    with silent_server(sent_bytes=sent_bytes) as endpoint:
        context = replace(split.context, io=_store(endpoint))
        remote = replace(split, path="s3://bucket/a.parquet", context=context)
        with pytest.raises(ice.TransientReadError, match="could not be read in 1 attempts"):
            list(ice.read_splits([remote], retries=0))


def test_writing_to_a_store_that_never_answers_is_an_error(table: Table) -> None:
    target = ice.write_target(table)
    metadata = target.metadata.model_copy(update={"location": "s3://bucket/tables/t"})
    with silent_server() as endpoint:
        far = replace(target, metadata=metadata, io=_store(endpoint))
        with pytest.raises(ice.WriteError, match="s3://bucket/tables/t"):
            ice.write_files(far, pa.table({"id": [2]}))
