"""Renew the credentials of a store through the catalog when they expire.

A catalog may vend credentials that last for minutes, but PyIceberg's file access keeps its first
ones. This module remembers the catalog and the table of each file access, in this process only.
`renew` puts new credentials into the file access, for all who use it. Files are then opened again.

A process that received file access by pickle has no catalog. It raises `CredentialsExpiredError`,
and the process that sent the work can send it again.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from pyiceberg.io import FileIO, OutputStream
from pyiceberg.typedef import Identifier

from icestream.catalogs._pyiceberg.stores import forget_file_systems, unbuffered_output
from icestream.catalogs._pyiceberg.timeouts import limit_signing, limit_waits
from icestream.catalogs.file_access import storage_properties, without_catalog_secrets
from icestream.catalogs.redaction import error_text
from icestream.errors import CredentialsExpiredError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

T = TypeVar("T")

_NEAR_SECONDS = 300.0
_EXPIRY = re.compile(
    r"s3\.session-token-expires-at-ms|gcs\.oauth2\.token-expires-at"
    r"|adls\.sas-token-expires-at-ms(?:\..*)?"
)
# How stores report expired credentials. S3 does so in the body of a response. The response to HEAD
# has no body, only a status.
_EXPIRED = re.compile(
    r"ExpiredToken|EXPIRED_TOKEN|TokenRefreshRequired|InvalidToken|RequestExpired|REQUEST_EXPIRED"
    r"|INVALID_CLIENT_TOKEN_ID|(?i:token (?:has|is) expired)"
    r"|(?i:not valid in the specified time frame)|UNAUTHENTICATED|Invalid Credentials"
)
_REFUSED = re.compile(
    r"ACCESS_DENIED|AccessDenied|INVALID_ACCESS_KEY_ID|InvalidAccessKeyId|AuthenticationFailed"
    r"|SIGNATURE_DOES_NOT_MATCH|Forbidden|Unauthorized"
    r"|HTTP (?:status|code|response code|error)[ :=]*40[013]\b|\b40[13] "
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Source:
    """The catalog and the table that new credentials come from."""

    catalog: Catalog
    identifier: Identifier
    location: str
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fresh(self) -> Mapping[str, str]:
        """New credentials, from the credentials endpoint or from loading the table again."""
        load_credentials = getattr(self.catalog, "load_credentials", None)
        if load_credentials is not None:
            try:
                if credentials := load_credentials(self.identifier, self.location):
                    return storage_properties(credentials)
            except NotImplementedError:  # The server vends credentials only with the table.
                pass
        return storage_properties(self.catalog.load_table(self.identifier).io.properties)


_sources: weakref.WeakKeyDictionary[FileIO, _Source] = weakref.WeakKeyDictionary()
_LASTING: Mapping[str, str] = {}


def _source_of(io: FileIO) -> _Source | None:
    try:
        return _sources.get(io)
    except TypeError:  # A FileIO from another library that is not hashable.
        return None


def access_to(
    io: FileIO, catalog: Catalog | None, identifier: Identifier | None, location: str
) -> FileIO:
    """File access for a table's files, without the catalog's secrets and with renewal.

    Args:
        io: The file access of the table.
        catalog: The catalog of the table. None disables renewal.
        identifier: The table's name in the catalog.
        location: The location of the table's files.
    """
    limit_waits(catalog)
    access = without_catalog_secrets(io)
    limit_signing(access)
    if catalog is not None and identifier and hasattr(catalog, "load_table"):
        with suppress(TypeError):
            _sources.setdefault(access, _Source(catalog, identifier, location))
    return access


def table_access(table: Table) -> FileIO:
    """File access for a table's files, as `access_to` returns it.

    After a refresh, the table object has new file access. The old one continues to work.
    """
    return access_to(table.io, table.catalog, table.name(), table.metadata.location)


def credentials_of(io: FileIO) -> Mapping[str, str]:
    """The credentials in use: the same object until a renewal replaces it."""
    return _LASTING if _source_of(io) is None else io.properties


def is_refused(error: BaseException) -> bool:
    """Whether a store has refused credentials, or may have."""
    text = str(error)
    return bool(_EXPIRED.search(text) or _REFUSED.search(text)) or isinstance(
        error, PermissionError
    )


def is_expired(error: BaseException, io: FileIO) -> bool:
    """Whether a store has refused credentials because they are too old."""
    if _EXPIRED.search(str(error)):
        return True
    if not is_refused(error):
        return False
    expires_at = expiry_seconds(io)
    has_token = bool(io.properties.get("s3.session-token"))
    return (expires_at is not None and expires_at <= time.time()) or (
        has_token and "HTTP status 400" in str(error)
    )


def expiry_seconds(io: FileIO) -> float | None:
    """When the first of the credentials expires, in seconds since 1970; None if unknown."""
    known = [
        float(value) / 1000
        for key, value in io.properties.items()
        if _EXPIRY.fullmatch(key) and re.fullmatch(r"\d+", str(value))
    ]
    return min(known, default=None)


def renew(io: FileIO, used: Mapping[str, str]) -> bool:
    """Get new credentials, once for all users of the same file access.

    Args:
        io: The file access.
        used: Its `credentials_of` when the refused request began.

    Returns:
        Whether the credentials now differ from those that were refused.

    Raises:
        Exception: The catalog's error.
    """
    source = _source_of(io)
    if source is None:
        return False
    with source.lock:
        if io.properties is not used:
            return True  # Another thread has renewed them.
        fresh = source.fresh()
        if all(io.properties.get(key) == value for key, value in fresh.items()):
            return False
        io.properties = {**io.properties, **fresh}
        forget_file_systems(io)
        _log.info("credentials for %s were renewed", ".".join(source.identifier))
    return True


def renew_if_near(io: FileIO) -> None:
    """Get new credentials if the current ones expire soon. Never raises."""
    expires_at = expiry_seconds(io)
    if expires_at is None or expires_at - time.time() > _NEAR_SECONDS:
        return
    try:
        renew(io, credentials_of(io))
    except Exception as error:
        _log.warning("credentials could not be renewed: %s", error_text(error))


def renewing(io: FileIO, action: Callable[[], T], *, path: str) -> T:
    """Run an action on a file, and run it again from its beginning if credentials have expired.

    Raises:
        CredentialsExpiredError: If the credentials can't be renewed.
    """
    used = credentials_of(io)
    try:
        return action()
    except Exception as error:
        if not is_refused(error) or not renewed_after(error, io, used, path=path):
            raise
    return action()


def create_output(io: FileIO, path: str) -> OutputStream:
    """Create a file with an unbuffered stream, and with credentials that do not expire soon.

    Raises:
        CredentialsExpiredError: If the credentials have expired and can't be renewed.
    """
    renew_if_near(io)
    return renewing(io, lambda: unbuffered_output(io, path).create(), path=path)


def renewed_after(error: Exception, io: FileIO, used: Mapping[str, str], *, path: str) -> bool:
    """Renew credentials after an error that may have been caused by them. Returns success.

    Raises:
        CredentialsExpiredError: If they have certainly expired and can't be renewed.
    """
    try:
        if renew(io, used):
            return True
    except Exception as trouble:
        raise expired_error(
            path, f"the catalog did not renew them: {error_text(trouble)}"
        ) from error
    if is_expired(error, io):
        why = "the catalog has no newer ones" if _source_of(io) else "this process has no catalog"
        raise expired_error(path, why) from error
    return False


def expired_error(path: str, why: str) -> CredentialsExpiredError:
    """The error for expired credentials that can't be renewed."""
    return CredentialsExpiredError(
        f"the credentials for {path} have expired, and {why}. Load the table again, or "
        "configure the catalog to vend credentials that last longer",
        path=path,
    )
