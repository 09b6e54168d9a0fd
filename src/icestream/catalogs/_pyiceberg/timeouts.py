"""Time limits for requests to catalogs and to servers that sign requests."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from icestream.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO


# The property names of Iceberg's Java client. PyIceberg itself has no time limits.
CONNECT_TIMEOUT = "rest.client.connection-timeout-ms"
ANSWER_TIMEOUT = "rest.client.socket-timeout-ms"
HIVE_TIMEOUT = "hive.client.socket-timeout-ms"
_CONNECT_TIMEOUT_MS, _ANSWER_TIMEOUT_MS = 10_000, 60_000
_REST, _HIVE = "pyiceberg.catalog.rest", "pyiceberg.catalog.hive"
_FSSPEC, _SIGNED = "pyiceberg.io.fsspec", "s3.signer"
_SIGNER, _LIMITED_SIGNER = "S3V4RestSigner", "icestream.S3V4RestSigner"
_SIGNED_SCHEMES = ("s3", "s3a", "s3n")
_Limits = tuple[float | None, float | None]


class _Waits(threading.local):
    """The limits for sessions that this thread creates."""

    limits: _Limits | None = None


_waits = _Waits()
_limited_users = 0
_limited_lock = threading.Lock()


@cache
def _limited_session() -> type[Any]:
    """A session whose requests fail if the server does not answer in time.

    Created on first use, because workers do not use a catalog and need not import `requests`.
    """
    import requests
    from pyiceberg.catalog.rest import auth

    module: Any = auth

    class LimitedSession(requests.Session):
        limits: _Limits | None = None

        def prepare_request(self, request: requests.Request) -> requests.PreparedRequest:
            before, _waits.limits = _waits.limits, self.limits or _waits.limits
            try:
                return super().prepare_request(request)  # This may request a token.
            finally:
                _waits.limits = before

        def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
            if kwargs.get("timeout") is None:
                kwargs["timeout"] = self.limits or _waits.limits
            return super().send(request, **kwargs)

    class LimitedRequests:
        """Replaces `requests` for the one request that PyIceberg sends without its session."""

        def post(self, url: str, **options: Any) -> requests.Response:
            with LimitedSession() as session:
                return session.post(url, **options)

    module.requests = LimitedRequests()
    return LimitedSession


@contextmanager
def limited_catalog(properties: Mapping[str, str]) -> Iterator[None]:
    """Set time limits for a REST catalog that is opened inside the `with` block.

    Args:
        properties: The properties of the catalog, which contain the limits.

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
    """Set the time limits of an open REST or Hive catalog, from its properties.

    Raises:
        InvalidArgumentError: If a limit is not a number.
    """
    hive = sys.modules.get(_HIVE)  # If it is not imported, the catalog is not a Hive catalog.
    if hive is not None and isinstance(catalog, hive.HiveCatalog):
        _limit_hive(catalog._client, catalog.properties)
    rest = sys.modules.get(_REST)
    if rest is None or not isinstance(catalog, rest.RestCatalog):
        return
    limited, session = _limited_session(), catalog._session
    if type(session) is limited.__base__:
        session.__class__ = limited
    if isinstance(session, limited):
        session.limits = _limits_of(catalog.properties)


@cache
def _limited_hive_client() -> type[Any]:
    """A client of Hive's metastore whose connections fail if the server does not answer."""
    from pyiceberg.catalog.hive import _HiveClient

    class LimitedHiveClient(_HiveClient):
        limit: float | None = None

        def _init_thrift_transport(self) -> Any:
            return self.limited(super()._init_thrift_transport())

        def limited(self, transport: Any) -> Any:
            for part in vars(transport).values():  # The socket is a private attribute.
                if hasattr(part, "setTimeout"):
                    part.setTimeout(None if self.limit is None else self.limit * 1000)
            return transport

    return LimitedHiveClient


def _limit_hive(client: Any, properties: Mapping[str, str]) -> None:
    limited = _limited_hive_client()
    if type(client) is limited.__base__:
        client.__class__ = limited
    if isinstance(client, limited):
        client.limit = _seconds(properties, HIVE_TIMEOUT, _ANSWER_TIMEOUT_MS)
        client.limited(client._transport)


def limit_signing(io: FileIO) -> None:
    """Apply the time limits of the catalog to the server that signs requests for fsspec.

    The limits are pickled with the file access.
    """
    fsspec = sys.modules.get(_FSSPEC)
    if fsspec is not None and isinstance(io, fsspec.FsspecFileIO) and io.properties.get(_SIGNED):
        io._scheme_to_fs |= dict.fromkeys(_SIGNED_SCHEMES, limited_s3)


def limited_s3(properties: Mapping[str, str]) -> Any:
    """S3 through fsspec. Requests for signatures fail if the server does not answer in time."""
    from pyiceberg.io import fsspec

    if properties.get(_SIGNED) == _SIGNER:
        fsspec.SIGNERS[_LIMITED_SIGNER] = _limited_signer()
        properties = {**properties, _SIGNED: _LIMITED_SIGNER}
    return fsspec._s3(dict(properties))


@cache
def _limited_signer() -> type[Any]:
    from pyiceberg.io.fsspec import S3V4RestSigner

    class LimitedSigner(S3V4RestSigner):
        def __init__(self, properties: dict[str, Any]) -> None:
            super().__init__(properties)
            session = _limited_session()()
            session.limits = _limits_of(properties)
            self._session = session

    return LimitedSigner


def _limits_of(properties: Mapping[str, str]) -> _Limits:
    """Seconds to connect, and seconds between two bytes of a response; None without a limit."""
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
    """The message for a catalog that did not answer in time; None for other errors."""
    if type(error).__module__.startswith("thrift.") and isinstance(
        getattr(error, "inner", None), TimeoutError
    ):
        limit = _seconds(properties, HIVE_TIMEOUT, _ANSWER_TIMEOUT_MS)
        return f"no answer within {limit:g} s: raise {HIVE_TIMEOUT} if it takes longer"
    requests = sys.modules.get("requests")
    if requests is None or not isinstance(error, requests.Timeout):
        return None
    connect, answer = _limits_of(properties)
    if isinstance(error, requests.ConnectTimeout):
        return f"no connection within {connect:g} s: raise {CONNECT_TIMEOUT} if it takes longer"
    return f"no answer within {answer:g} s: raise {ANSWER_TIMEOUT} if it takes longer"
