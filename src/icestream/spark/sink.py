"""The writing side of the Python data source: `df.write.format("icestream").save("db.t")`.

| option | meaning |
|---|---|
| `catalog`, `catalog.<property>` | the catalog's name in PyIceberg's configuration; more for it |
| `schema-mode`, `branch`, `load-id`, `memory` | as the arguments of `icestream.spark.append` |
| `property.<name>` | for the snapshot's summary |
| `overwrite-mode` | of mode `overwrite`: `all` (default), or `dynamic` for the frame's partitions |
| `overwrite-where` | of mode `overwrite`: a filter; the rows that it is true for go |
| `case-sensitive` | `true`: columns may differ by case only, as with `spark.sql.caseSensitive` |
| `create` | `true`: create the table if it is not there |
| `partition-by`, `sort-by`, `table-property.<name>` | of a table that is created |

Spark plans in one Python process, commits in another and knows neither distribution nor report:
`icestream.spark.append` and `overwrite` have both. Option names have no case in Spark, so the names
of properties come out in small letters.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from icestream.catalogs import load_table, open_catalog
from icestream.errors import IcestreamError, InvalidArgumentError
from icestream.memory import DEFAULT_MEMORY, parse_bytes
from icestream.spark.frame_schema import arrow_schema
from icestream.spark.table_write import WriteOptions, undone_if_refused
from icestream.spark.task_write import TaskResult
from icestream.spark.written_frame import Creation, plan
from icestream.write.schema import SchemaMode
from icestream.write.table_writer import Written

_CATALOG, _PROPERTY, _TABLE_PROPERTY = "catalog.", "property.", "table-property."
_KNOWN = (
    "branch",
    "case-sensitive",
    "catalog",
    "create",
    "load-id",
    "memory",
    "overwrite-mode",
    "overwrite-where",
    "partition-by",
    "path",
    "schema-mode",
    "sort-by",
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What the options of a writer say.

    Attributes:
        table: The table's name.
        catalog: The catalog's name.
        catalog_properties: Further properties of it. Tasks do not get them.
        write: What the write does.
        creation: How the table is created if it is not there; None: it must be there.
    """

    table: str
    catalog: str | None
    catalog_properties: Mapping[str, str]
    write: WriteOptions
    creation: Creation | None

    @classmethod
    def of(cls, given: Mapping[str, str], *, overwrite: bool) -> SinkOptions:
        """Read the options.

        Raises:
            InvalidArgumentError: If there are others, or values make no sense.
        """
        options = {name.lower(): value for name, value in given.items()}
        _refuse_unknown(options)
        if not options.get("path"):
            raise InvalidArgumentError("name the table: .save('db.t')")
        where = options.get("overwrite-where")
        dynamic = _choice(options, "overwrite-mode", ("all", "dynamic"), "all") == "dynamic"
        if not overwrite and (where is not None or "overwrite-mode" in options):
            raise InvalidArgumentError(
                "overwrite-where and overwrite-mode are for mode('overwrite'): leave them out"
            )
        write = WriteOptions(
            "overwrite" if overwrite else "append",
            parse_bytes(options.get("memory", DEFAULT_MEMORY)),
            where=where,
            partitions="dynamic" if dynamic else None,
            schema_mode=cast("SchemaMode", options.get("schema-mode", "freeze")),
            branch=options.get("branch"),
            properties=_below(options, _PROPERTY),
            load_id=options.get("load-id"),
            case_sensitive=_is_true(options, "case-sensitive"),
        )
        creation = Creation.of(
            _is_true(options, "create"),
            split_texts(options.get("partition-by", "")),
            split_texts(options.get("sort-by", "")),
            _below(options, _TABLE_PROPERTY),
        )
        return cls(
            options["path"], options.get("catalog"), _below(options, _CATALOG), write, creation
        )

    def open_catalog(self) -> Catalog:
        """The catalog, in the process that this is called in."""
        return open_catalog(self.catalog, self.catalog_properties)


class Answer(WriterCommitMessage):  # type: ignore[misc]
    """What a task did, for the commit."""

    def __init__(self, result: TaskResult) -> None:
        self.result = result


class IcestreamWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """One write: planned when it is made, run in tasks, committed in a process on the driver."""

    def __init__(self, options: Mapping[str, str], schema: Any, overwrite: bool) -> None:
        """Plan the write; nothing is written or created yet.

        Args:
            options: The writer's.
            schema: The frame's Spark schema.
            overwrite: Whether the mode is `overwrite`.

        Raises:
            SchemaMismatchError: If the frame does not fit the table.
            InvalidArgumentError: If an option is unknown, or does not fit.
            CatalogError: If the catalog has no such table, or can't be reached.
        """
        asked = SinkOptions.of(options, overwrite=overwrite)
        self._options: SinkOptions | None = asked
        self._is_with_tasks = False
        try:
            self._planned, _ = plan(
                asked.table,
                asked.open_catalog(),
                arrow_schema(schema),
                asked.write,
                asked.creation,
            )
        except IcestreamError as error:
            raise error from None  # Spark shows causes, too, and they may hold credentials

    def __getstate__(self) -> dict[str, Any]:
        """What a task needs, and then what the commit needs.

        Spark pickles a writer twice where it plans: first for the tasks, then for the process on
        the driver that commits. Only the second gets what opens the catalog.
        """
        if self._is_with_tasks:
            return dict(self.__dict__)
        self._is_with_tasks = True
        return {**self.__dict__, "_options": None}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Answer:
        """In a task: write its rows.

        Memory: the Arrow bytes held stay within the option `memory`.
        """
        if self._planned.already:
            return Answer(TaskResult(Written(), 0))
        return Answer(self._planned.task.write(iterator))

    def commit(self, messages: Sequence[Answer | None]) -> None:
        """Commit what all tasks wrote, as one snapshot."""
        planned, options = self._planned, self._options
        assert options is not None, "the writer of a task does not commit"
        results = [answer.result for answer in messages if answer is not None]
        try:
            with undone_if_refused(planned.target):
                catalog = options.open_catalog()
                into: Table | Catalog = catalog
                if planned.new_table is None:
                    into = load_table(options.table, catalog)
            report = planned.commit(into, results)
        except IcestreamError as error:
            raise error from None  # as above
        _log.debug("%s: %s", options.table, report)

    def abort(self, messages: Sequence[Answer | None]) -> None:
        """Delete the files of a job that failed.

        Spark calls this after a failed commit, too. Then every task has answered; the commit has
        deleted the files itself, unless it is not known whether they are in the table.
        """
        if not all(message is not None for message in messages):
            self._planned.abandon()


def split_texts(text: str) -> list[str]:
    """A list of texts such as `day(ts), bucket(16, id)`, cut at commas outside of parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts] if text.strip() else []


def _refuse_unknown(options: Mapping[str, str]) -> None:
    prefixes = (_CATALOG, _PROPERTY, _TABLE_PROPERTY)
    unknown = [n for n in options if n not in _KNOWN and not n.startswith(prefixes)]
    if unknown:
        known = [name for name in _KNOWN if name != "path"] + [f"{p}<name>" for p in prefixes]
        raise InvalidArgumentError(
            f"there is no option {', '.join(map(repr, sorted(unknown)))} for writing: there are "
            f"{', '.join(known)}"
        )


def _below(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix): value
        for name, value in options.items()
        if name.startswith(prefix)
    }


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return _choice(options, name, ("true", "false"), "false") == "true"


def _choice(options: Mapping[str, str], name: str, choices: tuple[str, ...], default: str) -> str:
    value = options.get(name, default).lower()
    if value not in choices:
        raise InvalidArgumentError(f"option {name} is {value!r}: give {' or '.join(choices)}")
    return value
