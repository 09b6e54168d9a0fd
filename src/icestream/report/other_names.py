"""Names that other libraries use, and the names that icestream has for the same thing.

`icestream.upsert` and `icestream.scan(row_filter=...)` do not exist. Their errors name what does.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import sys
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any

from icestream.errors import InvalidArgumentError

_SCAN = "icestream.scan(table)"
_WRITE = "icestream.append(table, source), icestream.overwrite(...) or icestream.merge(...)"
_MERGE = "icestream.merge(table, source, on=[...])"
_COMPACT = "icestream.compact(table)"
_ORPHANS = "icestream.orphans(table, delete=True)"
_LOAD = "icestream.load(sources, into='db.t')"
FUNCTIONS = {
    **dict.fromkeys(("read", "read_table", "read_iceberg", "scan_iceberg", "scan_table"), _SCAN),
    **dict.fromkeys(("open", "open_table", "query", "select", "to_batches"), _SCAN),
    **dict.fromkeys(("write", "write_table", "write_iceberg", "sink_iceberg"), _WRITE),
    **dict.fromkeys(("upsert", "update", "merge_into"), _MERGE),
    **dict.fromkeys(("optimize", "rewrite_data_files", "rewrite_files"), _COMPACT),
    **dict.fromkeys(("vacuum", "remove_orphan_files", "delete_orphan_files"), _ORPHANS),
    **dict.fromkeys(("copy", "copy_into", "ingest", "create_table"), _LOAD),
    "insert": "icestream.append(table, source)",
    "load_table": "icestream.table('db.t'), or a name: icestream.scan('db.t')",
    "pipeline": "icestream.run('pipeline.yaml')",
    **{name: f"icestream.scan(table).{name}()" for name in ("count", "explain", "head", "splits")},
    **{name: f"icestream.scan(table).{name}()" for name in ("to_arrow", "to_pandas", "to_polars")},
    "to_duckdb": "icestream.scan(table).to_duckdb()",
    "sql": "icestream.scan(table).to_duckdb(), or the command `icestream sql`",
    "progress": "icestream.integrations.notebook.NotebookProgress()",
    **{
        name: f"the command `icestream {name}`, or PyIceberg's table and catalog"
        for name in ("branch", "drop", "rename", "rollback", "snapshots", "tables", "tag")
    },
}
METHODS = {
    **dict.fromkeys(("read_all", "to_table", "collect", "to_arrow_table", "load"), "to_arrow()"),
    **dict.fromkeys(("to_arrow_batch_reader", "reader", "scanner"), "to_reader()"),
    **dict.fromkeys(
        ("to_batches", "to_record_batches", "iter_batches"), "a loop: for batch in scan"
    ),
    **dict.fromkeys(("filter", "where", "row_filter"), "icestream.scan(table, where=...)"),
    **dict.fromkeys(("select", "columns", "project"), "icestream.scan(table, columns=[...])"),
    **dict.fromkeys(("limit", "slice"), "head(n), or icestream.scan(table, limit=n)"),
    **dict.fromkeys(("use_ref", "use_branch"), "icestream.scan(table, branch=...) or tag=..."),
    "plan_files": "splits()",
    "take": "head(n)",
    "count_rows": "count()",
    "df": "to_pandas()",
    "pl": "to_polars()",
}
# For each name, the arguments that may have the same meaning. A function has one of them.
ARGUMENTS = {
    **dict.fromkeys(("row_filter", "filter", "filters", "predicate"), ("where", "delete_when")),
    **dict.fromkeys(("delete_filter", "overwrite_filter"), ("where",)),
    **dict.fromkeys(("selected_fields", "select", "fields", "projection"), ("columns",)),
    **dict.fromkeys(("join_cols", "join_columns", "key", "keys"), ("on", "keys")),
    **dict.fromkeys(("primary_key", "merge_key", "on"), ("on", "keys")),
    **dict.fromkeys(("df", "data", "rows", "reader", "arrow_table"), ("source", "sources")),
    **dict.fromkeys(("table", "destination", "target", "into"), ("into", "table")),
    **dict.fromkeys(("table_name", "identifier", "name"), ("table", "into")),
    **dict.fromkeys(("n_rows", "nrows", "num_rows", "max_rows"), ("limit",)),
    **dict.fromkeys(("snapshot", "version"), ("snapshot_id",)),
    **dict.fromkeys(("timestamp", "as_of_timestamp"), ("as_of",)),
    "ref": ("branch",),
    **dict.fromkeys(("snapshot_properties", "commit_properties"), ("properties",)),
    **dict.fromkeys(("memory_limit", "max_memory", "memory_budget"), ("memory",)),
    **dict.fromkeys(("batch_rows", "batch_readahead", "chunk_size"), ("batch_size",)),
    **dict.fromkeys(("write_disposition", "disposition"), ("mode",)),
    **dict.fromkeys(("merge_schema", "schema_evolution", "schema_contract"), ("schema_mode",)),
    "when_matched_update_all": ("when_matched",),
    "when_not_matched_insert_all": ("when_not_matched",),
    "target_size": ("target_file_bytes",),
}

_ELSEWHERE = {
    ("scan", "progress"): "icestream.integrations.notebook.NotebookProgress().over(scan)",
}


class UnknownArgumentError(InvalidArgumentError, TypeError):
    """A function has no argument of this name."""


class _Package(ModuleType):
    """A package whose name other libraries use for a function."""

    def __call__(self, *_: object, **__: object) -> None:
        name = self.__name__.rpartition(".")[2]
        problem = f"{self.__name__} is a package, not a function"
        raise TypeError(_message(problem, name, FUNCTIONS[name], ()))


def answer_calls(package: str) -> None:
    """Make calls of a package, such as `icestream.read(...)`, name the function that exists."""
    sys.modules[package].__class__ = _Package


def no_such_function(name: str, known: Collection[str]) -> str:
    """The message for a name that the package does not have."""
    problem = f"module 'icestream' has no attribute {name!r}"
    return _message(problem, name, FUNCTIONS.get(name), known)


def no_such_method(name: str, known: Collection[str]) -> str:
    """The message for a name that a scan does not have."""
    return _message(f"a Scan has no attribute {name!r}", name, METHODS.get(name), known)


def with_known_arguments(function: Callable[..., Any], module: str) -> Callable[..., Any]:
    """The function, with an error for unknown keyword arguments that names the right one.

    Args:
        function: The function.
        module: The module that publishes the result, from which it is unpickled.
    """
    parameters = inspect.signature(function).parameters
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if takes_any or kwargs.keys() <= parameters.keys():
            return function(*args, **kwargs)
        name = next(key for key in kwargs if key not in parameters)
        there = [each for each in ARGUMENTS.get(name, ()) if each in parameters]
        problem = f"{function.__name__}() has no argument {name!r}"
        instead = f"{there[0]}=" if there else _ELSEWHERE.get((function.__name__, name))
        raise UnknownArgumentError(_message(problem, name, instead, parameters))

    checked.__module__ = module
    return checked


def _message(problem: str, name: str, instead: str | None, known: Collection[str]) -> str:
    if instead is not None:
        return f"{problem}: use {instead}"
    near = difflib.get_close_matches(name, known, n=1)
    return f"{problem}: did you mean {near[0]!r}?" if near else problem
