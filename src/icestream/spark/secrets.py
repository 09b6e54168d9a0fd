"""What Spark must not show: the values of a catalog's secret properties.

Spark shows the options of a source in its plans, its UI and its event log, unless settings say what
to hide. `icestream.spark.register` sets them.
"""

from __future__ import annotations

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
