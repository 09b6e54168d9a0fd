"""Credentials of a store that expire: the catalog is asked for new ones, and the work goes on.

A catalog may vend credentials that last for minutes. PyIceberg's file access keeps those that it
was made with. Here each file access remembers the catalog and the table that it is for, in this
process only. `renew` puts new credentials into it, for everyone who holds it, and files are opened
again then.

A process that got file access by a pickle has no catalog: it raises `CredentialsExpiredError`, and
whoever gave it the work can give it again.
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

from icestream._pyiceberg import forget_file_systems, limit_waits, unbuffered_output
from icestream.errors import CredentialsExpiredError
from icestream.file_access import storage_properties, without_catalog_secrets
from icestream.redaction import error_text

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

T = TypeVar("T")

_NEAR_SECONDS = 300.0
_EXPIRY = re.compile(
    r"s3\.session-token-expires-at-ms|gcs\.oauth2\.token-expires-at"
    r"|adls\.sas-token-expires-at-ms(?:\..*)?"
)
# What stores say of credentials that have expired. S3 tells so in the body of an answer, and the
# answer to HEAD has none: then it is a status alone.
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
    """Where new credentials come from."""

    catalog: Catalog
    identifier: Identifier
    location: str
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fresh(self) -> Mapping[str, str]:
        """New credentials: those of the table, or those that come with it when it is loaded."""
        load_credentials = getattr(self.catalog, "load_credentials", None)
        if load_credentials is not None:
            try:
                if found := load_credentials(self.identifier, self.location):
                    return storage_properties(found)
            except NotImplementedError:  # the server vends them with the table only
                pass
        return storage_properties(self.catalog.load_table(self.identifier).io.properties)


_sources: weakref.WeakKeyDictionary[FileIO, _Source] = weakref.WeakKeyDictionary()
_LASTING: Mapping[str, str] = {}


def _source_of(io: FileIO) -> _Source | None:
    try:
        return _sources.get(io)
    except TypeError:  # an implementation of somebody else's that can't be a key
        return None


def access_to(
    io: FileIO, catalog: Catalog | None, identifier: Identifier | None, location: str
) -> FileIO:
    """File access for a table's files: without the catalog's secrets, and renewed by the catalog.

    Args:
        io: The table's own.
        catalog: The table's; None if there is none to ask.
        identifier: The table's name in it.
        location: Where the table's files are.
    """
    limit_waits(catalog)
    access = without_catalog_secrets(io)
    if catalog is not None and identifier and hasattr(catalog, "load_table"):
        with suppress(TypeError):
            _sources.setdefault(access, _Source(catalog, identifier, location))
    return access


def credentials_of(io: FileIO) -> Mapping[str, str]:
    """What is replaced by a renewal; the same object until then."""
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
    """When the first of the credentials expires, in seconds since 1970; None if nobody says."""
    known = [
        float(value) / 1000
        for key, value in io.properties.items()
        if _EXPIRY.fullmatch(key) and re.fullmatch(r"\d+", str(value))
    ]
    return min(known, default=None)


def renew(io: FileIO, used: Mapping[str, str]) -> bool:
    """Get new credentials, once for all who hold the same file access.

    Args:
        io: The file access.
        used: Its `credentials_of` when the refused request began.

    Returns:
        Whether there are other credentials now than those that were refused.

    Raises:
        Exception: What the catalog raises.
    """
    source = _source_of(io)
    if source is None:
        return False
    with source.lock:
        if io.properties is not used:
            return True  # somebody else was first
        fresh = source.fresh()
        if all(io.properties.get(key) == value for key, value in fresh.items()):
            return False
        io.properties = {**io.properties, **fresh}
        forget_file_systems(io)
        _log.info("credentials for %s were renewed", ".".join(source.identifier))
    return True


def renew_if_near(io: FileIO) -> None:
    """Get new credentials if those that are there expire soon. Never raises."""
    expires_at = expiry_seconds(io)
    if expires_at is None or expires_at - time.time() > _NEAR_SECONDS:
        return
    try:
        renew(io, credentials_of(io))
    except Exception as error:
        _log.warning("credentials could not be renewed: %s", error_text(error))


def renewing(io: FileIO, action: Callable[[], T], *, path: str) -> T:
    """Run an action on a file from its beginning; once more if credentials have expired.

    Raises:
        CredentialsExpiredError: If there are no new ones.
    """
    used = credentials_of(io)
    try:
        return action()
    except Exception as error:
        if not is_refused(error) or not renewed_after(error, io, used, path=path):
            raise
    return action()


def create_output(io: FileIO, path: str) -> OutputStream:
    """A new file, whose stream is the store's own, with credentials that do not expire at once.

    Raises:
        CredentialsExpiredError: If they have expired, and there are no new ones.
    """
    renew_if_near(io)
    return renewing(io, lambda: unbuffered_output(io, path).create(), path=path)


def renewed_after(error: Exception, io: FileIO, used: Mapping[str, str], *, path: str) -> bool:
    """Whether new credentials could be had after an error that may be about them.

    Raises:
        CredentialsExpiredError: If they have expired for certain, and there are no new ones.
    """
    try:
        if renew(io, used):
            return True
    except Exception as trouble:
        raise expired_error(path, f"the catalog gave no new ones: {error_text(trouble)}") from error
    if is_expired(error, io):
        why = "the catalog has no newer ones" if _source_of(io) else "this process has no catalog"
        raise expired_error(path, why) from error
    return False


def expired_error(path: str, why: str) -> CredentialsExpiredError:
    """The error, with what happened and what helps."""
    return CredentialsExpiredError(
        f"the credentials for {path} have expired, and {why}. Load the table again, or have the "
        "catalog vend credentials that last longer",
        path=path,
    )
