"""File access that may travel to other machines."""

from __future__ import annotations

from pyiceberg.io import FileIO

# Not imported to compare: fsspec may not be installed. Others may need whatever they were given.
_MADE_FROM_PROPERTIES = frozenset(
    {"pyiceberg.io.pyarrow.PyArrowFileIO", "pyiceberg.io.fsspec.FsspecFileIO"}
)
_CATALOG_SECRETS = frozenset({"password", "credential", "client-secret", "user"})


def without_catalog_secrets(io: FileIO) -> FileIO:
    """File access as it was, without what only the catalog needs: it travels to other machines.

    A catalog passes all its properties on to its `FileIO`, the address of its database among them.
    What a REST catalog's file access may need (its http address and token, for signing) is kept.
    """
    kind = type(io)
    if f"{kind.__module__}.{kind.__qualname__}" not in _MADE_FROM_PROPERTIES:
        return io
    kept = {
        key: value
        for key, value in io.properties.items()
        if key not in _CATALOG_SECRETS and not (key == "uri" and not str(value).startswith("http"))
    }
    return io if len(kept) == len(io.properties) else kind(kept)
