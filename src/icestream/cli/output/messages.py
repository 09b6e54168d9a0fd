"""Messages of the library, in the words of the command line.

The library names arguments of Python functions: `schema_mode='evolve'`. The command line names its
options, `--schema-mode evolve`, and a pipeline file has keys, `schema_mode: evolve`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import partial

from icestream.operations.merge.merge_options import MERGE_RULES

# Options of commands that have the name of the argument.
_SAME = """
    again as_of bad_records batch_size branch catalog checkpoint columns create engine format fresh
    incremental into keys last_by limit load_id master memory min_files mode name older_than on only
    only_catalog order other_tables partition_by quarantine remote schema_mode select snapshot_id
    sort_by state tag transform transform_engine watch where
"""
_RENAMED = {
    "properties": "--property",
    "schema": "--type COLUMN=TYPE",
    "table_properties": "--table-property",
    "target_file_bytes": "--target-file-size",
    "variables": "--var",
    "folders": "--folder",
    "dropped": "--dropped",
    "hive_partitions": "--hive-partitions",
}
# Options of `icestream run`. Its other words are keys of the pipeline file.
_OF_RUN = frozenset(("again", "catalog", "fresh", "only", "state", "variables"))
_NAMES = "|".join(sorted({*MERGE_RULES, *_SAME.split(), *_RENAMED}, key=len, reverse=True))
_VALUE = r"'[^']*'|\"[^\"]*\"|\[[^\]]*\]|[\w.*-]*"
_ARGUMENT = re.compile(rf"(?<![\w./'\"-])({_NAMES})=({_VALUE})( (?:the|another|other|a)\b)?")
# A message may begin with an argument, or name one later: "keys is ..., and mode is ...".
_SUBJECT = re.compile(
    rf"(^|, and |: |with a |\()({_NAMES})"
    r"(?= (?:is|has|names|needs|must|can't|repeats|runs|decides|says|')|\))"
)
_ONE_OF = re.compile(rf"(?<=\bgive one of )(?:{_NAMES})(?:, (?:{_NAMES}))*(?=, not)")
_LEAVE_OUT = re.compile(rf"\bleave ({_NAMES}) out\b")
_RAISE = re.compile(r"\braise memory\b")
_CALL = re.compile(r"ice\.(compact|orphans|health)\(table(?:, (delete)=True)?\)")
_READER_OPTION = re.compile(r"\boption (\w+)=(['\"])([\w-]+)\2")
_COLUMNS_OPTION = "--option columns=id,price, too"
_TWO_ENDS = re.compile(r"(?<=[?!])\.(?= |$)")  # as in "did you mean 'id'?. Fix it"
_NO_SNAPSHOT = re.compile(r"(\S+\.\S+) has no snapshot ")
_SNAPSHOTS = "`icestream snapshots NAME`"
_NEW_BRANCH = re.compile(
    r"(\S+) has no branch '(.*?)': create it first with table\.manage_snapshots\(\).*?commit\(\)"
)
_PYTHON = (
    ("table.history() lists", f"{_SNAPSHOTS} lists"),
    ("icestream.load(files, into='db.t') creates", "`icestream load FILES --into db.t` creates"),
    ("with table.update_spec()", "in Python, with table.update_spec()"),
    (
        "with table.maintenance.expire_snapshots()",
        "in Python, with table.maintenance.expire_snapshots()",
    ),
    ("or pass spark= a session that was started with it", "or start Spark with it"),
    ("with table.manage_snapshots()", "in Python, with table.manage_snapshots()"),
    ("options of files has", "--option has"),
    ("as option 'jar'", "with --option jar=FILE"),
    ("leave the option multiline out", "leave --option multiline out"),
    (" FROM source', or a function", " FROM source'"),
    ("give schema= other types", "give --type COLUMN=TYPE"),
    ("give schema= another type", "give --type COLUMN=TYPE"),
    ("schema= the types", "--type COLUMN=TYPE, the types"),
    ("icestream.spark needs PySpark", "Spark needs PySpark"),
)


def in_options(
    message: str,
    table: str | None = None,
    *,
    catalog: str | None = None,
    branch: str | None = None,
    command: str | None = None,
) -> str:
    """Write Python calls and arguments in a message as commands and options, on one line.

    Args:
        message: A message of the library.
        table: The table that commands in the message are for.
        catalog: The value of `--catalog` that such commands need.
        branch: The value of `--branch` that such commands need.
        command: The command that gave the message. Messages of `run` are about a pipeline file.
    """
    text = _TWO_ENDS.sub("", " ".join(message.split()))
    text = _NEW_BRANCH.sub(
        r"\1 has no branch '\2': create it first with `icestream branch create \1 \2`", text
    )
    for python, words in _PYTHON:
        text = text.replace(python, words)
    subject = _NO_SNAPSHOT.match(text)
    place = (subject[1] if subject else table, catalog)
    text = text.replace(_SNAPSHOTS, f"`{_pasted('snapshots', *place)}`")
    text = _CALL.sub(partial(_command, table=table, catalog=catalog, branch=branch), text)
    if command == "run":
        return _ARGUMENT.sub(_key, text)
    text = _RAISE.sub("raise --memory", text)
    text = _READER_OPTION.sub(r"--option \1=\3", text)
    text = _ARGUMENT.sub(partial(_option, command=command), text)
    text = text.replace("the option columns, too, as in ['id', 'price']", _COLUMNS_OPTION)
    text = _ONE_OF.sub(
        lambda match: ", ".join(_flag(each, command) for each in match[0].split(", ")), text
    )
    text = _LEAVE_OUT.sub(lambda match: f"leave {_flag(match[1], command)} out", text)
    return _SUBJECT.sub(lambda match: f"{match[1]}{_flag(match[2], command).split()[0]}", text)


def _command(
    match: re.Match[str], table: str | None, catalog: str | None, branch: str | None
) -> str:
    options = ["--delete"] if match[2] else []
    options += ["--branch", branch] if branch and match[1] != "orphans" else []
    return _pasted(match[1], table, catalog, options)


def _pasted(
    command: str, table: str | None, catalog: str | None, options: Sequence[str] = ()
) -> str:
    """A command that can be pasted into a shell."""
    of_catalog = ["--catalog", catalog] if catalog else []
    return shlex.join(["icestream", command, table or "NAME", *options, *of_catalog])


def _flag(name: str, command: str | None) -> str:
    if name in ("on", "keys"):
        return "--on" if command == "merge" else "--keys"
    return _RENAMED.get(name) or f"--{name.replace('_', '-')}"


def _option(match: re.Match[str], command: str | None) -> str:
    name, value, article = match[1], match[2], match[3] or ""
    flag = _flag(name, command)
    if value in ("True", "False"):
        return f"--no-{flag[2:]}{article}" if value == "False" else f"{flag}{article}"
    if name == "dropped" and "," in value:
        return " ".join(f"--dropped {each}" for each in _plain(value).split(","))
    text = _plain(value)
    if not text or " " in flag:  # a flag with a space names its value already
        return f"{flag}{' with' if article else ''}{article}"
    return f"{flag} {shlex.quote(text) if ' ' in text else text}{article}"


def _key(match: re.Match[str]) -> str:
    """Write an argument as a key of a pipeline file, or as an option of `run`."""
    name, value, article = match[1], match[2], match[3] or ""
    if name in _OF_RUN:
        return _option(match, "run")
    if value in ("True", "False"):
        return f"{name}: {value.lower()}{article}"
    key = "keys" if name == "on" else name
    return f"{key}: {_plain(value)}{article}".rstrip() if value else f"{key}:{article}"


def _plain(value: str) -> str:
    """A value without quotes. A list becomes names with commas."""
    if value.startswith("["):
        return ",".join(_plain(each.strip()) for each in value[1:-1].split(","))
    return value.strip("'\"")
