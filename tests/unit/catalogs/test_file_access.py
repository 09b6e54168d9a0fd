"""File access travels to workers without what only the catalog needs."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg import io as pyiceberg_io
from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

import icestream as ice
from icestream.catalogs.file_access import without_catalog_secrets
from icestream.commit.new_table import NewTable
from tests.support.catalogs import make_catalog

_NEEDED = {"s3.region": "eu", "s3.access-key-id": "key", "client.role-arn": "role"}
_SECRET = "hush-4711"
_OF_THE_CATALOG = {
    "uri": f"postgresql://me:{_SECRET}@host/db",
    "password": _SECRET,
    "user": _SECRET,
    "token": _SECRET,
    "credential": f"me:{_SECRET}",
    "client-secret": _SECRET,
    "oauth2-server-uri": f"https://me:{_SECRET}@host",
    "header.Authorization": f"Bearer {_SECRET}",
    "ssl.client.key": _SECRET,
    "auth": _SECRET,
    "rest.signing-key": _SECRET,
    "glue.secret-access-key": _SECRET,
    "dynamodb.secret-access-key": _SECRET,
    "hive.kerberos-token": _SECRET,
    "init_catalog_tables": _SECRET,
    "whatever-comes-next": _SECRET,
    "warehouse": "s3://bucket",
    "type": "sql",
}


@pytest.mark.parametrize("kind", [PyArrowFileIO, FsspecFileIO])
def test_what_only_the_catalog_needs_stays_behind(kind: type[FileIO]) -> None:
    io = kind({**_NEEDED, **_OF_THE_CATALOG})
    kept = without_catalog_secrets(io)
    assert type(kept) is kind
    assert kept.properties == _NEEDED
    assert without_catalog_secrets(io) is kept, "its connections are kept with it"


def test_every_property_that_pyiceberg_names_for_stores_is_kept() -> None:
    named = {
        value: "x"
        for name, value in vars(pyiceberg_io).items()
        if name.isupper() and isinstance(value, str) and "." in value and "/" not in value
    }
    named = {key: value for key, value in named.items() if not key.startswith("pyiceberg.")}
    assert len(named) > 40
    io = PyArrowFileIO({**named, "buffer-size": "1", "adls.sas-token.account": "x"})
    assert without_catalog_secrets(io) is io


def test_a_signers_address_and_token_are_kept_where_the_catalog_signs() -> None:
    given = {**_NEEDED, "s3.signer": "S3V4RestSigner", "token": "t", "header.X-Own": "h"}
    address = {"uri": "https://me:word@catalog/api"}
    kept = without_catalog_secrets(FsspecFileIO({**given, **address, "credential": "c:d"}))
    assert kept.properties == {**given, "uri": "https://catalog/api"}
    own = {**given, "s3.signer.uri": "https://signer"}
    assert without_catalog_secrets(FsspecFileIO({**own, **address})).properties == own


def test_file_access_that_others_made_is_left_alone() -> None:
    class Own(PyArrowFileIO):
        pass

    io = Own({"password": "word"})
    assert without_catalog_secrets(io) is io


def test_nothing_that_travels_holds_a_secret_of_the_catalog(tmp_path: Path) -> None:
    catalog = make_catalog(tmp_path)
    own = catalog.properties
    own.update({key: value for key, value in _OF_THE_CATALOG.items() if key not in own})
    schema = pa.schema([("id", pa.int64())])
    table = catalog.create_table("db.t", schema)
    ice.append(table, pa.table({"id": [1, 2]}))
    table = catalog.load_table("db.t")
    assert _SECRET in str(table.io.properties), "PyIceberg passes them on"
    travelling = {
        "splits": ice.scan(table, where="id > 1").splits(),
        "write target": ice.write_target(table),
        "new table": NewTable.plan(catalog, "db.new", schema),
    }
    for name, each in travelling.items():
        stored = pickle.dumps(each)
        assert _SECRET.encode() not in stored, name
        assert catalog.properties["uri"].encode() not in stored, name
