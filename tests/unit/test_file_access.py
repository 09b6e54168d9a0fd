"""File access travels to workers without what only the catalog needs."""

from __future__ import annotations

import pytest
from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from icestream.file_access import without_catalog_secrets

_NEEDED = {"s3.region": "eu", "s3.access-key-id": "key"}


@pytest.mark.parametrize("kind", [PyArrowFileIO, FsspecFileIO])
def test_the_catalogs_password_and_address_stay_behind(kind: type[FileIO]) -> None:
    given = {**_NEEDED, "uri": "postgresql://me:word@host/db", "password": "word", "user": "me"}
    kept = without_catalog_secrets(kind(given))
    assert type(kept) is kind
    assert kept.properties == _NEEDED


def test_a_rest_catalogs_address_and_token_are_kept_for_signing() -> None:
    given = {**_NEEDED, "uri": "https://catalog", "token": "t"}
    io = PyArrowFileIO(given)
    assert without_catalog_secrets(io) is io


def test_file_access_that_others_made_is_left_alone() -> None:
    class Own(PyArrowFileIO):
        pass

    io = Own({"password": "word"})
    assert without_catalog_secrets(io) is io
