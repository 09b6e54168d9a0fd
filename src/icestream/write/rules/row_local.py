"""Checks that SQL is row-local: each row of the result depends on one row of `source` only.

Only such SQL gives the same result if several tasks run it, each over its own rows. DuckDB parses
the SQL, as it also runs it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from icestream.errors import InvalidArgumentError
from icestream.write.rules.duckdb_query import VIEW, duckdb_module
from icestream.write.schema.columns import empty_batch

_REASON = "transform_engine='duckdb'"
_MODIFIERS = {
    "DISTINCT_MODIFIER": "DISTINCT",
    "ORDER_MODIFIER": "ORDER BY",
    "LIMIT_MODIFIER": "LIMIT",
    "LIMIT_PERCENT_MODIFIER": "LIMIT",
}
_TABLES = {
    "JOIN": "a join",
    "SUBQUERY": "a subquery",
    "TABLE_FUNCTION": "a table function",
    "PIVOT": "PIVOT",
    "EXPRESSION_LIST": "VALUES",
    "EMPTY": "a SELECT without FROM source",
}
# The operators of a plan that keep rows apart.
_OPERATORS = {"PROJECTION", "FILTER", "UNNEST", "EMPTY_RESULT", "DUMMY_SCAN"}


def refuse_unless_row_local(sql: str) -> None:
    """Refuse SQL that is not row-local.

    Raises:
        InvalidArgumentError: With the part of the SQL that is not.
        MissingExtraError: If DuckDB is not installed.
    """
    duckdb = duckdb_module(_REASON)
    with duckdb.connect(":memory:") as connection:
        [[text]] = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
        parsed = json.loads(text)
        if parsed.get("error"):
            raise InvalidArgumentError(
                f"transform can't be parsed by DuckDB: {parsed.get('error_message')}. Write one "
                f"SELECT that reads the view {VIEW}"
            )
        query = "SELECT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'"
        aggregates = {name for [name] in connection.execute(query).fetchall()}
    if len(parsed["statements"]) != 1:
        raise _refusal("several statements")
    for part in _parts(parsed["statements"][0]["node"], aggregates):
        raise _refusal(part)


def refuse_unless_plan_is_row_local(sql: str, stream: pa.Schema) -> None:
    """Refuse SQL whose plan brings rows together, for example in a macro such as `geomean`.

    Raises:
        InvalidArgumentError: With the operator of the plan.
    """
    duckdb = duckdb_module(_REASON)
    with duckdb.connect(":memory:") as connection:
        connection.register(VIEW, pa.table(empty_batch(stream)))
        try:
            [[_, text]] = connection.execute(f"EXPLAIN (FORMAT json) {sql}").fetchall()
        except duckdb.Error as error:
            shown = " ".join(str(error).split())
            raise InvalidArgumentError(
                f"the transform failed: {shown}. DuckDB runs it over the view {VIEW}"
            ) from error
    for operator in _operators(json.loads(text)):
        if operator not in _OPERATORS and not operator.endswith("ARROW_SCAN"):
            raise _refusal(operator)


def _refusal(part: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"transform has {part}, and with transform_engine='duckdb' each task sees only its own "
        "rows: write a SELECT of expressions and a WHERE over source, or leave transform_engine "
        "out so that Spark runs the SQL"
    )


def _parts(node: dict[str, Any], aggregates: set[str]) -> Iterator[str]:
    """What is not row-local, in words."""
    if node["type"] != "SELECT_NODE":
        yield "a set operation" if "SET_OPERATION" in node["type"] else node["type"]
        return
    if node["cte_map"]["map"]:
        yield "WITH"
    table = node["from_table"]
    if table["type"] != "BASE_TABLE":
        yield _TABLES.get(table["type"], table["type"])
    elif table["table_name"].lower() != VIEW or table["schema_name"]:
        yield f"the table {table['table_name']!r}"
    yield from (_MODIFIERS.get(each["type"], each["type"]) for each in node["modifiers"])
    if node["group_expressions"] or node["group_sets"]:
        yield "GROUP BY"
    if node["aggregate_handling"] != "STANDARD_HANDLING":
        yield "GROUP BY ALL"
    for clause in ("having", "qualify", "sample"):
        if node[clause]:
            yield clause.upper()
    if table.get("sample"):
        yield "SAMPLE"
    yield from _in_expressions([node["select_list"], node["where_clause"]], aggregates)


def _in_expressions(tree: Any, aggregates: set[str]) -> Iterator[str]:
    if isinstance(tree, list):
        for each in tree:
            yield from _in_expressions(each, aggregates)
    elif isinstance(tree, dict):
        kind = tree.get("class")
        if kind == "SUBQUERY":
            yield "a subquery"
        elif kind == "WINDOW":
            yield "a window function"
        elif kind == "FUNCTION" and tree["function_name"].lower() in aggregates:
            yield f"the aggregate {tree['function_name'].removesuffix('_star')}"
        else:
            yield from _in_expressions(list(tree.values()), aggregates)


def _operators(tree: Any) -> Iterator[str]:
    for node in tree if isinstance(tree, list) else [tree]:
        if name := node.get("name"):
            yield str(name).strip()
        yield from _operators(node.get("children") or [])
