"""What Spark must not show: the values of a catalog's secret properties.

Spark shows the options of a source in its plans, its UI and its event log, unless settings say what
to hide. `icestream.spark.register` sets them.
"""

from __future__ import annotations

CATALOG_PREFIX = "catalog."

# Where Spark shows options by name, and where Spark Connect shows what it was asked, or SQL.
REDACTION_SETTINGS = {
    "spark.sql.redaction.options.regex": (
        r"(?i)url|uri\b|user|passw|passphrase|pwd|credential|sas\b|connection|dsn"
        r"|(account|private|api)[-_.]?key|^catalog[.]"
    ),
    "spark.sql.redaction.string.regex": (
        r'key: "(?i:catalog[.][^"]*)"\s*value: "[^"]*"'
        r"|(?i)catalog[.][\w.-]+[`\"']?\s*=?\s*\\?['\"][^'\"]*"
        r"|(?i)jdbc:[a-z](?:[{][^{}]*[}]|[^\s'\"{}])*|(?<=://)[^\s/'\"@]*:[^\s'\"]*@"
    ),
}
