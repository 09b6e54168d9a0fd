"""What must not be shown: the values of a catalog's secret properties, and passwords in addresses.

Spark shows the options of a source in its plans, its UI and its event log, unless settings say what
to hide. `icestream.spark.register` sets them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

PLAN_OPTION = "secret-plan"  # by its name Spark's own settings hide it, where nobody sets others
CATALOG_PREFIX = "catalog."

# Where Spark shows options by name, and where Spark Connect shows what it was asked, or SQL.
REDACTION_SETTINGS = {
    "spark.sql.redaction.options.regex": r"(?i)url|^catalog[.]|^secret-plan$",
    "spark.sql.redaction.string.regex": (
        r'key: "(?i:catalog[.][^"]*|secret-plan)"\s*value: "[^"]*"'
        r"|(?i)catalog[.][\w.-]+[`\"']?\s*=?\s*\\?['\"][^'\"]*"
    ),
}

_HIDDEN = "*****"
_SECRET = re.compile(
    r"(?i)secret|password|token|credential|access-?key|account-?key|private-?key|sas|connection-string"
)
_USER = re.compile(r"(?<=://)[^/@\s]+@")
_PARAMETER = re.compile(r"(?i)([?&](?:password|pwd|token|user)=)[^&\s'\")]+")


def redact(text: str, properties: Mapping[str, str] | None = None) -> str:
    """The text without the values of secret properties, and without passwords in addresses."""
    for value in _secret_values((properties or {}).items()):
        text = text.replace(value, _HIDDEN)
    return _PARAMETER.sub(rf"\1{_HIDDEN}", _USER.sub(f"{_HIDDEN}@", text))


def _secret_values(properties: Iterable[tuple[str, str]]) -> list[str]:
    values = {str(value) for key, value in properties if _SECRET.search(key)}
    # The longest first: one may be a part of another.
    return sorted((value for value in values if value), key=len, reverse=True)
