"""The library's messages in the words of the command line."""

from __future__ import annotations

import re

_OPTIONS = (
    "as_of|bad_records|branch|catalog|checkpoint|columns|delete_when|engine|format|isolation|keys|"
    "last_by|limit|load_id|master|memory|min_files|mode|null_keys|on_duplicate|order|"
    "other_tables|quarantine|schema_mode|snapshot_id|tag|transform|update_columns|when_matched|"
    "when_not_matched|where|write_mode"
)
_ARGUMENT = re.compile(rf"(?<![\w./'\"-])({_OPTIONS})=(['\"]?)([\w.*-]*)\2")
_CALL = re.compile(r"ice\.(compact|orphans|health)\(table(?:, (delete)=True)?\)")
_LIMIT = re.compile(r"\braise memory\b")
_FLAG = re.compile(r"\b(incremental|only_catalog)=True")
_DROPPED = re.compile(r"\bdropped=\['([\w-]+)'\]")


def in_options(message: str, table: str | None = None) -> str:
    """Calls and arguments of Python, as commands and options; and all in one line."""
    text = " ".join(message.split())
    text = _CALL.sub(lambda found: _command(found, table or "NAME"), text)
    text = _LIMIT.sub("raise --memory", text)
    text = _DROPPED.sub(r"--dropped \1", text)
    text = _FLAG.sub(lambda found: f"--{found.group(1).replace('_', '-')}", text)
    text = text.replace("hive_partitions=False", "--no-hive-partitions")
    text = text.replace("give schema= other types", "give --type COLUMN=TYPE")
    return _ARGUMENT.sub(_option, text)


def _command(found: re.Match[str], table: str) -> str:
    delete = " --delete" if found.group(2) else ""
    return f"icestream {found.group(1)} {table}{delete}"


def _option(found: re.Match[str]) -> str:
    return f"--{found.group(1).replace('_', '-')} {found.group(3)}".rstrip()
