"""The tables that a query names, and the columns that it needs of each of them.

A column that is left out wrongly could be looked up in another table, so the rule is cautious. A
column is needed if its name occurs anywhere in the query, unless it is clear that the name belongs
to another table. All columns are needed if a star includes the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, PrimitiveType

from icestream.spark.statements.names import NamedTable
from icestream.spark.statements.words import Word, refused, sqlglot_module

# Parts of a SELECT and of a table's name that neither rename columns nor add any.
_SELECT_PARTS = {
    "cluster", "distinct", "distribute", "expressions", "from", "from_", "group", "having", "hint",
    "joins", "kind", "laterals", "limit", "offset", "order", "qualify", "sort", "where", "windows",
    "with", "with_",
}  # fmt: skip
_TABLE_PARTS = {"alias", "catalog", "db", "sample", "this", "version"}
METADATA_COLUMNS = ("_file", "_pos", "_partition", "_spec_id")

# Types in the order in which a count reads them.
_CHEAP = ("boolean", "int", "date", "long", "float", "timestamp", "timestamptz", "double")


@dataclass(slots=True)
class Source:
    """An Iceberg table in a query.

    Attributes:
        node: The table in the tree of sqlglot.
        entry: The table.
        parts: The parts of its name.
        start: Where the name starts in the text.
        end: Where the name and its version end in the text.
        version: Arguments of the read that select the version.
        schema: The table's columns in this version.
        case_sensitive: Whether the session distinguishes names by case.
    """

    node: Any
    entry: NamedTable
    parts: tuple[str, ...]
    start: int
    end: int
    version: dict[str, Any] = field(default_factory=dict, repr=False)
    schema: Schema = field(default_factory=Schema)
    case_sensitive: bool = False

    @property
    def alias(self) -> str:
        """The name that the query uses for the table."""
        return str(self.node.alias_or_name)

    @property
    def select(self) -> Any | None:
        """The SELECT that the table belongs to, if nothing in it renames or adds columns."""
        exp = sqlglot_module("sqlglot.expressions")
        holder = self.node.parent
        select = holder.parent if isinstance(holder, (exp.From, exp.Join)) else None
        if not isinstance(select, exp.Select):
            return None
        plain = all(key in _SELECT_PARTS for key, value in select.args.items() if value)
        named = all(key in _TABLE_PARTS for key, value in self.node.args.items() if value)
        return select if plain and named and not self.node.alias_column_names else None

    def folded(self, name: str) -> str:
        """A name in the form in which the session compares names."""
        return name if self.case_sensitive else name.lower()

    @property
    def columns(self) -> dict[str, str]:
        """The names of the columns, by their folded names; empty if two of them are the same."""
        columns = {self.folded(each.name): each.name for each in self.schema.fields}
        return columns if len(columns) == len(self.schema.fields) else {}

    def is_called(self, name: str) -> bool:
        """Whether the query uses this name for the table."""
        return self.folded(name) == self.folded(self.alias)


def parts_of(column: Any) -> list[str]:
    """The parts of a column's name, with the names of its table."""
    return [part.name for part in column.parts]


def needed_columns(source: Source, query: Any, words: Sequence[Word]) -> dict[str, list[str]]:
    """The arguments `columns` and `metadata_columns` of a read.

    Args:
        source: The table.
        query: The whole query, as a tree of sqlglot.
        words: The words of its text.

    Raises:
        InvalidArgumentError: If the query needs all columns and a metadata column.
    """
    names = set(_names(source, query, words))
    known = source.columns
    hidden = [name for name in METADATA_COLUMNS if name in names and name not in known]
    if not known or has_star(source):
        if hidden:
            raise refused(f"{hidden[0]} next to a star of {source.entry.name}", "name all columns")
        return {}
    columns = [name for folded, name in known.items() if folded in names]
    if not columns and not hidden:
        columns = [_cheapest(source)]
    arguments = {"columns": columns or [_cheapest(source)]}
    if hidden:
        arguments["metadata_columns"] = hidden
    return arguments


def has_star(source: Source) -> bool:
    """Whether a star of the query may include the table's columns."""
    exp = sqlglot_module("sqlglot.expressions")
    select = source.select
    if select is None:
        return True
    if any(join.args.get("method") for join in select.args.get("joins") or ()):
        return True  # NATURAL JOIN compares all columns with the same name
    for star in select.find_all(exp.Star):
        holder = star.parent
        if isinstance(holder, exp.Column):
            qualifiers = parts_of(holder)[:-1]
            if any(source.is_called(name) for name in qualifiers):
                return True
        elif not isinstance(holder, exp.Count) and star.find_ancestor(exp.Select) is select:
            return True
    return False


def _names(source: Source, query: Any, words: Sequence[Word]) -> Iterator[str]:
    """Names in the query that may be columns of the table."""
    exp = sqlglot_module("sqlglot.expressions")
    for column in query.find_all(exp.Column):
        before: str | None = None
        for name in parts_of(column):
            if before is None or source.is_called(before):
                yield source.folded(name)
            before = name
    for name in query.find_all(exp.Identifier):
        is_renamed = isinstance(name.parent, exp.TableAlias) and name.arg_key == "columns"
        if is_renamed or not isinstance(name.parent, (exp.Column, exp.Table, exp.TableAlias)):
            yield source.folded(name.name)
    # sqlglot takes some names for functions, such as `current_date`, or for units of time.
    known = {name.meta.get("start") for name in query.find_all(exp.Identifier)}
    for word in words:
        if word.kind in ("word", "quoted") and word.start not in known:
            yield source.folded(word.name)


def _cheapest(source: Source) -> str:
    """The column that a query reads if it needs only the number of rows."""
    return min(source.schema.fields, key=lambda each: _rank(each.field_type)).name


def _rank(kind: IcebergType) -> int:
    if str(kind) in _CHEAP:
        return _CHEAP.index(str(kind))
    return len(_CHEAP) + (not isinstance(kind, PrimitiveType))
