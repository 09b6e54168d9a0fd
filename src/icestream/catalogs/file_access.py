"""File access that may be sent to other machines, without the properties of the catalog."""

from __future__ import annotations

import weakref
from collections.abc import Mapping

import pyiceberg.io as keys
from pyiceberg.io import FileIO

from icestream.catalogs.arrow_io import BUFFER_SIZE
from icestream.catalogs.redaction import without_password

# Compared by name, because fsspec may not be installed.
_PYARROW = "pyiceberg.io.pyarrow.PyArrowFileIO"
_FSSPEC = "pyiceberg.io.fsspec.FsspecFileIO"
_STORES = ("s3.", "gcs.", "adls.", "hdfs.", "hf.")
_NAMES = frozenset(
    {
        keys.AWS_ACCESS_KEY_ID,
        keys.AWS_PROFILE_NAME,
        keys.AWS_REGION,
        keys.AWS_ROLE_ARN,
        keys.AWS_ROLE_SESSION_NAME,
        keys.AWS_SECRET_ACCESS_KEY,
        keys.AWS_SESSION_TOKEN,
        BUFFER_SIZE,
        "DEFAULT_SCHEME",
        "DEFAULT_NETLOC",
    }
)
_HEADER = "header."
_LIMITS = "rest.client."  # time limits for requests to the signer
_stripped: weakref.WeakKeyDictionary[FileIO, tuple[dict[str, str], FileIO]] = (
    weakref.WeakKeyDictionary()
)


def without_catalog_secrets(io: FileIO) -> FileIO:
    """The same file access, with only the properties that PyIceberg's file access reads.

    A catalog passes all its properties on to its `FileIO`, including its passwords, tokens, headers
    and keys. Their names are not known in advance. If the catalog signs each request for the store
    (`s3.signer`), the store needs the catalog's address, token and headers, so they are kept. Other
    implementations of `FileIO` keep all properties, because they may need any of them.
    """
    kind = type(io)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name not in (_PYARROW, _FSSPEC):
        return io
    kept = storage_properties(io.properties)
    if name == _FSSPEC and io.properties.get(keys.S3_SIGNER):
        kept |= _signing(io.properties)
    if len(kept) == len(io.properties):
        return io
    known = _stripped.get(io)
    if known is None or known[0] != kept:
        known = _stripped[io] = kept, kind(dict(kept))
    return known[1]


def storage_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that configure a store."""
    return {
        key: value for key, value in properties.items() if key.startswith(_STORES) or key in _NAMES
    }


def _signing(properties: Mapping[str, str]) -> dict[str, str]:
    signing = {
        key: value
        for key, value in properties.items()
        if key in ("uri", "token") or key.startswith((_HEADER, _LIMITS))
    }
    if keys.S3_SIGNER_URI in properties:
        signing.pop("uri", None)
    if "uri" in signing:
        signing["uri"] = without_password(signing["uri"])
    return signing
