"""The writing side of the Python data source: `df.write.format("icestream").save("db.t")`.

| option | meaning |
|---|---|
| `catalog`, `catalog.<property>` | catalog name in PyIceberg's configuration, further properties |
| `schema-mode`, `branch`, `load-id`, `memory` | the same as in `icestream.spark.append` |
| `property.<name>` | property for the snapshot's summary |
| `overwrite-mode` | replace `all` rows (default) or, with `dynamic`, the frame's partitions |
| `overwrite-where` | filter for mode `overwrite`: replace the rows that match |
| `case-sensitive` | `true`: columns may differ only by case, as with `spark.sql.caseSensitive` |
| `create` | `true`: create the table if it does not exist |
| `partition-by`, `sort-by`, `table-property.<name>` | for a new table |

Spark plans in one Python process and commits in another. The format neither distributes rows nor
returns a report: use `icestream.spark.append` or `overwrite` for that. Spark ignores the case of
option names, so the names of properties become lower case.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from icestream.catalogs.lookup import load_table, open_catalog
from icestream.errors import IcestreamError, InvalidArgumentError
from icestream.memory.budget import DEFAULT_MEMORY, parse_bytes
from icestream.spark.arrow.frame_schema import arrow_schema
from icestream.spark.format.read_options import NAME_IT, options_below, parse_flag, parse_option
from icestream.spark.setup.settings import CATALOG_PREFIX
from icestream.spark.tasks.task_write import TaskResult
from icestream.spark.writing.table_write import FrameWriteOptions, undone_if_refused
from icestream.spark.writing.written_frame import Creation, plan
from icestream.write.schema.schema_plan import SchemaMode
from icestream.write.table_writer import Written

_PROPERTY, _TABLE_PROPERTY = "property.", "table-property."
_OVERWRITE_MODE = "overwrite-mode"
_KNOWN = (
    "branch",
    "case-sensitive",
    "catalog",
    "create",
    "load-id",
    "memory",
    _OVERWRITE_MODE,
    "overwrite-where",
    "partition-by",
    "path",
    "schema-mode",
    "sort-by",
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a writer.

    Attributes:
        table: The table's name.
        catalog: The catalog's name.
        catalog_properties: Further properties of the catalog, which tasks do not get.
        write: The options of the write itself.
        creation: How to create the table if it does not exist; None if it must exist.
    """

    table: str
    catalog: str | None
    catalog_properties: Mapping[str, str] = field(repr=False)
    write: FrameWriteOptions
    creation: Creation | None

    @classmethod
    def of(cls, given: Mapping[str, str], *, overwrite: bool) -> SinkOptions:
        """Parse the options.

        Raises:
            InvalidArgumentError: If an option is unknown or its value is invalid.
        """
        options = {name.lower(): value for name, value in given.items()}
        options.pop("read-latest", None)  # of a view, which is read and written
        _refuse_unknown(options)
        if not options.get("path"):
            raise InvalidArgumentError(f'writing with format("icestream") needs a table: {NAME_IT}')
        where = options.get("overwrite-where")
        mode = parse_option(_OVERWRITE_MODE, options.get(_OVERWRITE_MODE, "all"), _overwrite_mode)
        if not overwrite and (where is not None or _OVERWRITE_MODE in options):
            raise InvalidArgumentError(
                "overwrite-where and overwrite-mode are for mode('overwrite'): leave them out"
            )
        write = FrameWriteOptions(
            "overwrite" if overwrite else "append",
            memory=parse_bytes(options.get("memory", DEFAULT_MEMORY)),
            where=where,
            partitions="dynamic" if mode == "dynamic" else None,
            schema_mode=cast("SchemaMode", options.get("schema-mode", "freeze")),
            branch=options.get("branch"),
            properties=options_below(options, _PROPERTY),
            load_id=options.get("load-id"),
            case_sensitive=_is_true(options, "case-sensitive"),
        )
        creation = Creation.of(
            _is_true(options, "create"),
            split_texts(options.get("partition-by", "")),
            split_texts(options.get("sort-by", "")),
            options_below(options, _TABLE_PROPERTY),
        )
        catalog_properties = options_below(options, CATALOG_PREFIX)
        return cls(options["path"], options.get("catalog"), catalog_properties, write, creation)

    def open_catalog(self) -> Catalog:
        """Open the catalog in the current process."""
        return open_catalog(self.catalog, self.catalog_properties)


class Answer(WriterCommitMessage):  # type: ignore[misc]
    """The result of a task, for the commit."""

    def __init__(self, result: TaskResult) -> None:
        self.result = result


class IcestreamWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """One write: planned on creation, run in tasks, committed in a process on the driver."""

    def __init__(self, options: Mapping[str, str], schema: Any, overwrite: bool) -> None:
        """Plan the write. Nothing is written or created yet.

        Args:
            options: The options of the writer.
            schema: The frame's Spark schema.
            overwrite: Whether the mode is `overwrite`.

        Raises:
            SchemaMismatchError: If the frame does not fit the table.
            InvalidArgumentError: If an option is unknown or invalid.
            CatalogError: If the catalog has no such table, or can't be reached.
        """
        parsed = SinkOptions.of(options, overwrite=overwrite)
        self._options: SinkOptions | None = parsed
        self._is_with_tasks = False
        try:
            self._planned, _ = plan(
                parsed.table,
                parsed.open_catalog(),
                arrow_schema(schema),
                parsed.write,
                parsed.creation,
            )
        except IcestreamError as error:
            raise error from None  # Spark shows causes as well, and they may contain credentials

    def __getstate__(self) -> dict[str, Any]:
        """The state for the tasks, and then for the commit.

        The process that plans pickles the writer twice: first for the tasks, then for the process
        that commits. Only the second copy has the options that open the catalog.
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
        """Commit the files of all tasks, as one snapshot."""
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
            raise error from None  # as in __init__
        _log.debug("%s: %s", options.table, report)

    def abort(self, messages: Sequence[Answer | None]) -> None:
        """Delete the files of a job that failed.

        Spark calls this method after a failed commit, too. In that case every task has returned a
        result, and the commit has deleted the files itself unless they may be in the table.
        """
        if not all(message is not None for message in messages):
            self._planned.abandon()


def split_texts(text: str) -> list[str]:
    """Split a list such as `day(ts), bucket(16, id)` at commas outside of parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts] if text.strip() else []


def _refuse_unknown(options: Mapping[str, str]) -> None:
    prefixes = (CATALOG_PREFIX, _PROPERTY, _TABLE_PROPERTY)
    unknown = [n for n in options if n not in _KNOWN and not n.startswith(prefixes)]
    if unknown:
        known = [name for name in _KNOWN if name != "path"] + [f"{p}<name>" for p in prefixes]
        raise InvalidArgumentError(
            f"there is no option {', '.join(map(repr, sorted(unknown)))} for writing: the options "
            f"are {', '.join(known)}"
        )


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return bool(parse_option(name, options.get(name, "false"), parse_flag))


def _overwrite_mode(text: str) -> str:
    if text.lower() not in ("all", "dynamic"):
        raise ValueError("give all or dynamic")
    return text.lower()
