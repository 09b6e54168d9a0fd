"""File access that may travel to other machines: what a store needs, and nothing of the catalog."""

from __future__ import annotations

import weakref
from collections.abc import Mapping

from pyiceberg.io import (
    AWS_ACCESS_KEY_ID,
    AWS_PROFILE_NAME,
    AWS_REGION,
    AWS_ROLE_ARN,
    AWS_ROLE_SESSION_NAME,
    AWS_SECRET_ACCESS_KEY,
    AWS_SESSION_TOKEN,
    S3_SIGNER,
    S3_SIGNER_URI,
    FileIO,
)
from pyiceberg.io.pyarrow import BUFFER_SIZE

from icestream.redaction import without_password

# Not imported to compare: fsspec may not be installed. Others may need whatever they were given.
_PYARROW = "pyiceberg.io.pyarrow.PyArrowFileIO"
_FSSPEC = "pyiceberg.io.fsspec.FsspecFileIO"
_STORES = ("s3.", "gcs.", "adls.", "hdfs.", "hf.")
_NAMES = frozenset(
    {
        AWS_ACCESS_KEY_ID,
        AWS_PROFILE_NAME,
        AWS_REGION,
        AWS_ROLE_ARN,
        AWS_ROLE_SESSION_NAME,
        AWS_SECRET_ACCESS_KEY,
        AWS_SESSION_TOKEN,
        BUFFER_SIZE,
        "DEFAULT_SCHEME",
        "DEFAULT_NETLOC",
    }
)
_HEADER = "header."
_stripped: weakref.WeakKeyDictionary[FileIO, tuple[dict[str, str], FileIO]] = (
    weakref.WeakKeyDictionary()
)


def without_catalog_secrets(io: FileIO) -> FileIO:
    """File access as it was, with the properties that PyIceberg's file access reads, and no others.

    A catalog passes all its properties on to its `FileIO`: passwords, tokens, headers and keys of
    its own among them, under names that nobody can list. Where the catalog signs each request for
    the store (`s3.signer`), its address, token and headers are what the store needs, and are kept.
    Other implementations of `FileIO` are left alone: they may need whatever they were given.
    """
    kind = type(io)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name not in (_PYARROW, _FSSPEC):
        return io
    signs = name == _FSSPEC and bool(io.properties.get(S3_SIGNER))
    kept = storage_properties(io.properties)
    if signs:
        kept |= _signing(io.properties)
    if len(kept) == len(io.properties):
        return io
    known = _stripped.get(io)
    if known is None or known[0] != kept:
        known = _stripped[io] = kept, kind(dict(kept))
    return known[1]


def storage_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Those properties that are about a store."""
    return {
        key: value for key, value in properties.items() if key.startswith(_STORES) or key in _NAMES
    }


def _signing(properties: Mapping[str, str]) -> dict[str, str]:
    found = {
        key: value
        for key, value in properties.items()
        if key in ("uri", "token") or key.startswith(_HEADER)
    }
    if S3_SIGNER_URI in properties:
        found.pop("uri", None)
    if "uri" in found:
        found["uri"] = without_password(found["uri"])
    return found
