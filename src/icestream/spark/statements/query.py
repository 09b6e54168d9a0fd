"""A query as a DataFrame: Spark runs its text, with frames in place of the names of tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import icestream.spark as verbs
from icestream.errors import InvalidArgumentError
from icestream.read.request import request
from icestream.spark.arrow.frame_schema import quoted
from icestream.spark.setup.installed import pyspark_module
from icestream.spark.setup.registration import setting
from icestream.spark.statements.constants import Constants
from icestream.spark.statements.metadata_tables import metadata_frame
from icestream.spark.statements.names import NamedTable, Names
from icestream.spark.statements.pushdown import pushed_filter
from icestream.spark.statements.sources import Source, needed_columns
from icestream.spark.statements.words import (
    DIALECT,
    Cursor,
    Word,
    refused,
    sqlglot_module,
    unparsable,
    words_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Session:
    """What a statement runs with.

    Attributes:
        spark: The session.
        names: Finds tables.
        memory: The memory limit of each task; None for the session's.
        case_sensitive: Whether the session distinguishes names by case.
    """

    spark: SparkSession
    names: Names
    memory: int | str | None
    case_sensitive: bool

    def query(self, text: str, frames: Mapping[str, DataFrame] | None = None) -> DataFrame:
        """The frame of a query.

        Args:
            text: The query.
            frames: Frames that the text names in braces, as in `spark.sql(text, **frames)`. Without
                frames, braces have no meaning.

        Raises:
            InvalidArgumentError: If the text can't be parsed, or Spark can't resolve a name in it.
            CatalogError: If a catalog has no such table.
        """
        if frames is not None:
            return run_sql(self.spark, text, frames)
        tree = parsed(text)
        sources = list(self._sources(tree, text))
        if not sources:
            return run_sql(self.spark, text, {})
        constants = Constants.of(self.spark, text)
        edits = list(_edits(tree, text, sources))
        words = words_of(text)
        reads = {
            f"table{number}": self._frame(source, sources, tree, words, constants)
            for number, source in enumerate(sources)
        }
        return run_sql(self.spark, _edited(text, edits), reads)

    def tables_of(self, text: str) -> list[NamedTable]:
        """The Iceberg tables that a query reads."""
        return [source.entry for source in self._sources(parsed(text), text)]

    def _sources(self, tree: Any, text: str) -> Iterator[Source]:
        exp = sqlglot_module("sqlglot.expressions")
        words = words_of(text)
        places = {word.start: number for number, word in enumerate(words)}
        for node in tree.find_all(exp.Table):
            named = isinstance(node.this, (exp.Identifier, exp.Dot))
            if not named or node.find_ancestor(exp.Hint) is not None:
                continue
            parts = tuple(part.name for part in node.parts)
            entry = self.names.find(parts)
            if entry is None:
                if node.args.get("version"):
                    raise refused(f"time travel of {'.'.join(parts)}, a table of Spark")
                continue
            start = node.parts[0].meta["start"]
            cursor = Cursor(text, words, places[node.parts[-1].meta["start"]] + 1)
            version = self._version(cursor, entry)
            end = words[cursor.place - 1].end
            schema = entry.table.schema()
            if entry.metadata_table is None:
                schema = request(entry.table, **version).context.schema
            yield Source(node, entry, parts, start, end, version, schema, self.case_sensitive)

    def _version(self, cursor: Cursor, entry: NamedTable) -> dict[str, Any]:
        """Read the version that the text selects."""
        start = cursor.place
        cursor.accept("FOR")
        by_time = cursor.keyword() in ("TIMESTAMP", "SYSTEM_TIME")
        if not by_time and cursor.keyword() not in ("VERSION", "SYSTEM_VERSION"):
            cursor.place = start
            return entry.version
        cursor.place += 1
        if not cursor.accept("AS", "OF"):
            cursor.place = start
            return entry.version
        if entry.version or entry.metadata_table:
            raise refused(f"AS OF after {entry.name}.{entry.metadata_table or entry.version}")
        first = cursor.place
        cursor.skip()
        if cursor.symbol()[:1] in ("'", '"', "("):  # TIMESTAMP '...', or a function
            cursor.skip()
        given = cursor.between(first, cursor.place)
        return self._moment(given) if by_time else self._ref(given, entry)

    def _moment(self, given: str) -> dict[str, Any]:
        text = f"SELECT unix_micros(CAST({given} AS TIMESTAMP)) AS moment"
        [row] = run_sql(self.spark, text, {}).collect()
        if row[0] is None:
            raise InvalidArgumentError(f"TIMESTAMP AS OF {given} is not a time")
        return {"as_of": int(row[0]) // 1000}

    def _ref(self, given: str, entry: NamedTable) -> dict[str, Any]:
        name = given.strip("'\"")
        if name.isdigit():
            return {"snapshot_id": int(name)}
        if name == given:
            raise refused(f"VERSION AS OF {given}", "give a snapshot id, or a name in quotes")
        ref = entry.table.metadata.refs.get(name)
        if ref is None:
            known = ", ".join(sorted(entry.table.metadata.refs)) or "none"
            raise InvalidArgumentError(
                f"{entry.name} has no branch or tag {name!r}: it has {known}"
            )
        return {ref.snapshot_ref_type.value: name}

    def _frame(
        self,
        source: Source,
        sources: list[Source],
        tree: Any,
        words: list[Word],
        constants: Constants,
    ) -> DataFrame:
        if source.entry.metadata_table is not None:
            name = source.entry.metadata_table
            return metadata_frame(self.spark, source.entry.table, name, memory=self.memory)
        columns = needed_columns(source, tree, words)
        return verbs.read(
            self.spark,
            source.entry.table,
            where=pushed_filter(source, sources, constants),
            memory=self.memory,
            **columns,  # type: ignore[arg-type]
            **source.version,
        )


def parsed(text: str) -> Any:
    """The tree of a query.

    Raises:
        InvalidArgumentError: If the text can't be parsed, or is not a query.
    """
    sqlglot = sqlglot_module()
    try:
        tree = sqlglot.parse_one(text, dialect=DIALECT)
    except sqlglot.errors.SqlglotError as error:
        raise unparsable(error) from error
    exp = sqlglot.expressions
    if not isinstance(tree, (exp.Query, exp.Values)):
        raise refused(f"{type(tree).__name__.upper()} as a query")
    return tree


def run_sql(spark: SparkSession, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    """Call `spark.sql`, and raise errors of the text as errors of icestream."""
    with spark_errors():
        frame = spark.sql(text, **frames)
        _ = frame.schema  # Spark Connect finds errors only now
        return frame


@contextmanager
def spark_errors() -> Iterator[None]:
    """Raise Spark's errors of a statement as errors of icestream."""
    errors = pyspark_module("pyspark.errors")
    try:
        yield
    except errors.ParseException as error:
        raise unparsable(error) from error
    except errors.AnalysisException as error:
        message = str(error).partition(";")[0].partition("\n")[0].strip()
        raise InvalidArgumentError(f"Spark can't run the statement: {message}") from error


def check_text(spark: SparkSession, text: str) -> None:
    """Refuse texts that Spark would read differently from sqlglot.

    Raises:
        InvalidArgumentError: If the text has such a part. The message names it.
    """
    if not isinstance(text, str):
        raise InvalidArgumentError(f"the SQL text is a {type(text).__name__}: give a string")
    if "${" in text and str(setting(spark, "spark.sql.variable.substitute")).lower() != "false":
        raise refused("${...} in the text", "insert the value before the call")
    names_in_quotes = setting(spark, "spark.sql.ansi.doubleQuotedIdentifiers") or ""
    if '"' in text and names_in_quotes.lower() == "true":
        raise refused('names in double quotes ("a")', "use backticks")
    words = words_of(text)
    for word, following in pairwise(words):
        if word.keyword == "IDENTIFIER" and following.text == "(":
            raise refused("IDENTIFIER(...)", "write the name itself")
        if word.text.startswith("|>") or (word.text + following.text, word.end) == (
            "|>",
            following.start,
        ):
            raise refused("the pipe syntax |>", "write a SELECT")


def _edits(tree: Any, text: str, sources: list[Source]) -> Iterator[tuple[int, int, str]]:
    """The parts of the text to replace, and their replacements."""
    exp = sqlglot_module("sqlglot.expressions")
    words = words_of(text)
    places = {word.end: number for number, word in enumerate(words)}
    unnamed = []
    for number, source in enumerate(sources):
        yield source.start, source.end, f"{{table{number}}}"
        if not source.node.alias:
            cursor = Cursor(text, words, places[source.end] + 1)
            if cursor.accept("TABLESAMPLE"):
                cursor.group()
                if cursor.accept("REPEATABLE"):
                    cursor.group()
            end = words[cursor.place - 1].end
            yield end, end, f" AS {_escaped(quoted(source.alias))}"
            unnamed.append(source)
    for column in tree.find_all(exp.Column):
        names = [part.name for part in column.parts if isinstance(part, exp.Identifier)]
        length = next((_prefix(names, each) for each in unnamed if _prefix(names, each)), 0)
        if length > 1:  # `db.t.id` becomes `t.id`
            first, table = column.parts[0], column.parts[length - 1]
            yield first.meta["start"], table.meta["start"], ""


def _prefix(names: list[str], source: Source) -> int:
    """How many of the names are the name of the table, with its namespace."""
    parts = [source.folded(part) for part in source.parts]
    folded = [source.folded(name) for name in names]
    for length in range(min(len(parts), len(folded) - 1), 1, -1):
        is_field = folded[0] in source.columns and folded[length] not in source.columns
        if folded[:length] == parts[-length:] and not is_field:
            return length
    return 0


def _edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    pieces, place = [], 0
    for start, end, replacement in sorted(edits):
        pieces += [_escaped(text[place:start]), replacement]
        place = end
    return "".join([*pieces, _escaped(text[place:])])


def _escaped(text: str) -> str:
    """A text in which braces have no meaning for `spark.sql(text, **frames)`."""
    return text.replace("{", "{{").replace("}", "}}")
