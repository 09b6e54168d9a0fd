"""Addresses of databases: which driver reads them, and how they are shown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from icestream.catalogs.redaction import without_password

Driver = Literal["sqlite", "duckdb", "postgres", "adbc", "jdbc"]

_DATABASE = re.compile(r"(jdbc|adbc|sqlite|duckdb|postgres|postgresql):")
_POSTGRES = re.compile(r"(?:jdbc:)?postgres(?:ql)?:")
_FILE = re.compile(r"((?:jdbc:)?(sqlite|duckdb):)(//)?(.*)", re.DOTALL)
_ADBC = re.compile(r"adbc:([a-z]\w*):(.*)", re.DOTALL)
_ADBC_FILES = ("sqlite", "duckdb")  # drivers whose address is a path


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """The address of a database.

    Attributes:
        driver: What reads it: Python for `sqlite`, the package of the database for `duckdb`,
            `postgres` and `adbc`, and Spark for `jdbc`.
        path: The file of an embedded database.
        name: The name of an ADBC driver.
        uri: The address that an ADBC driver expects.
    """

    driver: Driver
    path: str = field(default="", repr=False)
    name: str = ""
    uri: str = field(default="", repr=False)

    @classmethod
    def of(cls, url: str, *, has_jar: bool = False) -> DatabaseAddress:
        """Parse an address.

        Args:
            url: The address.
            has_jar: Whether the source names the jar of a JDBC driver, which then reads it.
        """
        if has_jar:
            return cls("jdbc")
        if file := _FILE.fullmatch(url):
            # As in SQLAlchemy: three slashes before a relative path, four before an absolute one.
            path = file[4].removeprefix("/") if file[3] else file[4]
            return cls("sqlite" if file[2] == "sqlite" else "duckdb", path=path)
        if adbc := _ADBC.fullmatch(url):
            return cls("adbc", name=adbc[1], uri=adbc[2])
        return cls("postgres" if _POSTGRES.match(url) else "jdbc")


def is_database(text: str) -> bool:
    """Whether a source that is written as text is a database."""
    return _DATABASE.match(text) is not None


def placed_address(url: str, folder: Path | None) -> str:
    """The address; the path of a file of a database is relative to the folder."""
    file = _FILE.fullmatch(url)
    if file is None or folder is None:
        return url
    path = DatabaseAddress.of(url).path
    return f"{file[1]}///{folder / path}" if path and not Path(path).is_absolute() else url


def shown_address(url: str) -> str:
    """The address without user, password and other secrets."""
    adbc = _ADBC.fullmatch(url)
    if adbc is None:
        return without_password(url)
    name, uri = adbc.groups()
    if name in _ADBC_FILES or not uri:
        return f"adbc:{name}:{uri.partition('?')[0]}"
    if "://" in uri:
        return f"adbc:{name}:{without_password(uri)}"
    return f"adbc:{name}:" + without_password(f"{name}://{uri}").partition("://")[2]
