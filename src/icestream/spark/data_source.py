"""The Python data source behind `format("icestream")`.

The data source plans in a Python process that Spark starts for it. `icestream.spark.read` plans in
the calling process instead (`icestream.spark.tasks.planned_frame`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from icestream.spark.setup.settings import SessionDefaults

# Methods import the rest when they need it, because Spark starts a Python process for each step.
if TYPE_CHECKING:
    from icestream.spark.format.read_options import ReadOptions
    from icestream.spark.format.reader import TableReader
    from icestream.spark.format.sink import IcestreamWriter
    from icestream.spark.format.table_read import PinnedTable, TableRead
    from icestream.spark.streaming.stream_reader import IcestreamStreamReader
    from icestream.spark.streaming.stream_sink import IcestreamStreamWriter

FORMAT = "icestream"


class IcestreamSource(DataSource):  # type: ignore[misc]
    """`format("icestream")`.

    Attributes:
        defaults: The defaults of the session, set by `icestream.spark.register`.
    """

    defaults: ClassVar[SessionDefaults] = SessionDefaults()

    _pinned: PinnedTable | None = None

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Load the table and return its columns. By default the read uses this state of it."""
        from icestream.spark.format.read_options import ReadOptions
        from icestream.spark.format.table_read import PinnedTable, TableRead
        from icestream.spark.streaming.stream_options import without_stream_options
        from icestream.spark.tasks.task_notes import planning_errors

        with planning_errors():
            # Spark does not say whether this is for a stream: `reader` refuses stream options.
            options = ReadOptions.of(without_stream_options(self.options))
            pinned = PinnedTable.load(options)
            self._pinned = None if options.read_latest else pinned
            return TableRead(pinned, options, self.defaults).schema()

    def reader(self, schema: StructType) -> TableReader:
        """The reader, which plans the read."""
        from icestream.spark.format.read_options import ReadOptions
        from icestream.spark.format.reader import PushingReader, TableReader
        from icestream.spark.tasks.task_notes import planning_errors

        with planning_errors():
            options = ReadOptions.of(self._take_options())
            kind = PushingReader if options.push_filters else TableReader
            return kind(self._table_read(options, schema))

    def streamReader(self, schema: StructType) -> IcestreamStreamReader:  # noqa: N802 - Spark's name
        """The reader of a stream: see `icestream.spark.streaming.stream_reader`."""
        from icestream.spark.format.read_options import ReadOptions
        from icestream.spark.streaming.stream_options import StreamOptions, without_stream_options
        from icestream.spark.streaming.stream_reader import IcestreamStreamReader
        from icestream.spark.tasks.task_notes import planning_errors

        with planning_errors():
            given = self._take_options()
            follow = StreamOptions.of(given)
            options = ReadOptions.of(without_stream_options(given))
            return IcestreamStreamReader(self._table_read(options, schema), follow)

    def writer(self, schema: Any, overwrite: bool) -> IcestreamWriter:
        """The writer of a frame: see `icestream.spark.format.sink`."""
        from icestream.spark.format.sink import IcestreamWriter
        from icestream.spark.tasks.task_notes import planning_errors

        defaults = {"memory": str(self.defaults.memory_bytes)}
        with planning_errors():
            return IcestreamWriter({**defaults, **self.options}, schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> IcestreamStreamWriter:  # noqa: N802
        """The writer of micro-batches: see `icestream.spark.streaming.stream_sink`."""
        from icestream.spark.streaming.stream_sink import IcestreamStreamWriter
        from icestream.spark.tasks.task_notes import planning_errors

        with planning_errors():
            return IcestreamStreamWriter(self.options, schema, overwrite, self.defaults)

    # Spark sends this object along with every task, so it must not keep credentials or the table.

    def _take_options(self) -> dict[str, str]:
        given = dict(self.options)
        self.options.clear()
        return given

    def _table_read(self, options: ReadOptions, schema: StructType) -> TableRead:
        from icestream.spark.format.table_read import PinnedTable, TableRead

        pinned, self._pinned = self._pinned, None
        read = TableRead(pinned or PinnedTable.load(options), options, self.defaults)
        return read.of_schema(schema)
