"""Time limits for requests: what PyIceberg's sessions, clients and signers do, and ours."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from pyiceberg.catalog import rest
from pyiceberg.io import fsspec
from pyiceberg.io.fsspec import FsspecFileIO, S3V4RestSigner
from requests import Session

from icestream.catalogs._pyiceberg import timeouts

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
