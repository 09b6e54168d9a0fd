"""Credentials of a store: when they have expired, and who gets new ones."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

import icestream as ice
from icestream.catalogs.credentials import (
    access_to,
    credentials_of,
    expiry_seconds,
    is_expired,
    is_refused,
    renew,
    renew_if_near,
    renewing,
)

_EXPIRES = "s3.session-token-expires-at-ms"
_REFUSED = OSError("AWS Error ACCESS_DENIED during HeadObject: HTTP status 403")
_EXPIRED = OSError("AWS Error ExpiredToken: the token has expired")


class _Vending:
    """A catalog that vends another key each time, or always the same one."""

    properties: dict[str, str] = {}

    def __init__(self, *, same: bool = False) -> None:
        self.vended = 0
        self._same = same

    def load_table(self, identifier: Any) -> Any:
        self.vended += 1
        key = "key 0" if self._same else f"key {self.vended}"
        return SimpleNamespace(io=PyArrowFileIO({"s3.access-key-id": key, "token": "secret"}))


def _access(catalog: Any, **properties: str) -> FileIO:
    io = PyArrowFileIO({"s3.access-key-id": "key 0", **properties})
    return access_to(io, catalog, ("db", "t"), "s3://bucket/t")


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (_REFUSED, True),
        (_EXPIRED, True),
        (PermissionError("no"), True),
        (OSError("HTTP status 500"), False),
        (FileNotFoundError("gone"), False),
    ],
    ids=str,
)
def test_errors_that_new_credentials_may_cure(error: Exception, refused: bool) -> None:
    assert is_refused(error) is refused


def test_a_refusal_means_expiry_only_once_the_time_has_passed() -> None:
    now = time.time()
    past, future = str(int((now - 9) * 1000)), str(int((now + 999) * 1000))
    assert is_expired(_REFUSED, PyArrowFileIO({_EXPIRES: past}))
    assert not is_expired(_REFUSED, PyArrowFileIO({_EXPIRES: future}))
    assert not is_expired(_REFUSED, PyArrowFileIO({}))
    assert is_expired(_EXPIRED, PyArrowFileIO({}))


def test_the_first_expiry_counts_and_other_texts_are_ignored() -> None:
    properties = {_EXPIRES: "5000", "gcs.oauth2.token-expires-at": "3000", "s3.region": "9"}
    assert expiry_seconds(PyArrowFileIO(properties)) == 3.0
    assert expiry_seconds(PyArrowFileIO({_EXPIRES: "soon"})) is None


def test_new_credentials_are_fetched_once_for_all_who_used_the_old_ones() -> None:
    catalog = _Vending()
    io = _access(catalog)
    used = credentials_of(io)
    assert renew(io, used)
    assert renew(io, used)
    assert catalog.vended == 1
    assert io.properties == {"s3.access-key-id": "key 1"}  # without the catalog's token


def test_a_catalog_that_vends_the_same_key_again_has_no_newer_ones() -> None:
    io = _access(_Vending(same=True))
    assert not renew(io, credentials_of(io))
    assert not renew(PyArrowFileIO({}), {})


def test_an_action_runs_again_with_new_credentials() -> None:
    io = _access(_Vending())
    errors = [_EXPIRED]

    def action() -> str:
        if errors:
            raise errors.pop()
        return io.properties["s3.access-key-id"]

    assert renewing(io, action, path="s3://bucket/a") == "key 1"


@pytest.mark.parametrize(
    ("catalog", "why"),
    [(_Vending(same=True), "has no newer ones"), (None, "this process has no catalog")],
    ids=["same", "none"],
)
def test_credentials_that_can_not_be_renewed_are_an_error_that_names_the_file(
    catalog: Any, why: str
) -> None:
    def action() -> None:
        raise _EXPIRED

    with pytest.raises(ice.CredentialsExpiredError, match=why) as caught:
        renewing(_access(catalog), action, path="s3://bucket/a")
    assert caught.value.path == "s3://bucket/a"


def test_other_errors_are_raised_as_they_are() -> None:
    def action() -> None:
        raise FileNotFoundError("gone")

    catalog = _Vending()
    with pytest.raises(FileNotFoundError, match="gone"):
        renewing(_access(catalog), action, path="s3://bucket/a")
    assert catalog.vended == 0


def test_credentials_that_expire_soon_are_renewed_ahead() -> None:
    catalog = _Vending()
    soon = str(int((time.time() + 60) * 1000))
    later = str(int((time.time() + 3600) * 1000))
    renew_if_near(_access(catalog, **{_EXPIRES: later}))
    assert catalog.vended == 0
    renew_if_near(_access(catalog, **{_EXPIRES: soon}))
    assert catalog.vended == 1
