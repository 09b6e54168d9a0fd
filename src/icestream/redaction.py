"""Text without secrets: the values of a catalog's secret properties, and passwords in addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_HIDDEN = "*****"
_SECRET = re.compile(
    r"(?i)secret|password|token|credential|access-?key|account-?key|private-?key|sas|connection-string"
)
_USER = re.compile(r"(?<=://)[^/@\s]+@")
_PARAMETER = re.compile(r"(?i)([?&;]\s*(?:ssl)?(?:password|pwd|token|user)=)[^&;\s'\")]+")
_OPTIONS = re.compile("[?;]")
_ORACLE = re.compile(r"(?i)(?<=:)(thin|oci8?):[^@\s]+@")  # jdbc:oracle:thin:user/password@//host


def redact(text: str, properties: Mapping[str, str] | None = None) -> str:
    """The text without the values of secret properties, and without passwords in addresses."""
    for value in _secret_values((properties or {}).items()):
        text = text.replace(value, _HIDDEN)
    text = _ORACLE.sub(rf"\1:{_HIDDEN}@", _USER.sub(f"{_HIDDEN}@", text))
    return _PARAMETER.sub(rf"\1{_HIDDEN}", text)


def error_text(error: BaseException, properties: Mapping[str, str] | None = None) -> str:
    """What an error of a catalog says, and of which type it is, without secrets."""
    return f"{type(error).__name__}: {redact(str(error), properties)}"


def without_password(uri: str) -> str:
    """The address alone: a database's often has a password in it."""
    before, separator, after = _ORACLE.sub(r"\1:@", uri).partition("://")
    return f"{before}{separator}{_OPTIONS.split(after)[0].rpartition('@')[2]}"


def _secret_values(properties: Iterable[tuple[str, str]]) -> list[str]:
    values = {str(value) for key, value in properties if _SECRET.search(key)}
    # The longest first: one may be a part of another.
    return sorted((value for value in values if value), key=len, reverse=True)
