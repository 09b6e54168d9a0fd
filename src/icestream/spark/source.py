"""The Python data source behind `format("icestream")`.

It plans in the Python process that Spark starts for it. `icestream.spark.read` goes another way: it
has planned before Spark sees anything (`icestream.spark.planned_frame`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from icestream.spark.share_reader import ShareReader
from icestream.spark.task_plan import SessionDefaults

# The rest is imported by the methods that need it: Spark starts a Python process for each step.
if TYPE_CHECKING:
    from icestream.spark.reader import PinnedTable
    from icestream.spark.sink import IcestreamWriter
    from icestream.spark.stream_reader import IcestreamStreamReader
    from icestream.spark.stream_sink import IcestreamStreamWriter

FORMAT = "icestream"


class IcestreamSource(DataSource):  # type: ignore[misc]
    """`format("icestream")`.

    Attributes:
        defaults: What reads take from the session; `icestream.spark.register` fills it in.
    """

    defaults: ClassVar[SessionDefaults] = SessionDefaults()

    _pinned: PinnedTable | None = None

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of the table, which is loaded now: that state of it will be read."""
        from icestream.spark.plain_errors import plain_errors
        from icestream.spark.read_options import ReadOptions
        from icestream.spark.reader import PinnedTable, TableRead
        from icestream.spark.stream_options import without_stream_options

        with plain_errors():
            # Whether this is for a stream is not known here; `reader` refuses options of streams.
            options = ReadOptions.of(without_stream_options(self.options))
            self._pinned = PinnedTable.load(options)
            return TableRead(self._pinned, options, self.defaults).schema()

    def reader(self, schema: StructType) -> ShareReader:
        """The reader, which makes a plan."""
        # Spark sends this object along with every task: let it hold neither the plan of them all
        # nor the table, and no credentials.
        given = dict(self.options)
        self.options.clear()
        pinned, self._pinned = self._pinned, None
        from icestream.spark.plain_errors import plain_errors
        from icestream.spark.read_options import ReadOptions
        from icestream.spark.reader import PinnedTable, PushingReader, TableRead, TableReader

        with plain_errors():
            options = ReadOptions.of(given)
            read = TableRead(pinned or PinnedTable.load(options), options, self.defaults)
            kind = PushingReader if options.push_filters else TableReader
            return kind(read.of_schema(schema))

    def streamReader(self, schema: StructType) -> IcestreamStreamReader:  # noqa: N802 - Spark's name
        """The reader of a stream: see `icestream.spark.stream_reader`."""
        from icestream.spark.plain_errors import plain_errors
        from icestream.spark.read_options import ReadOptions
        from icestream.spark.reader import PinnedTable, TableRead
        from icestream.spark.stream_options import StreamOptions, without_stream_options
        from icestream.spark.stream_reader import IcestreamStreamReader

        given = dict(self.options)
        self.options.clear()  # as in `reader`
        pinned, self._pinned = self._pinned, None
        with plain_errors():
            follow = StreamOptions.of(given)
            options = ReadOptions.of(without_stream_options(given))
            read = TableRead(pinned or PinnedTable.load(options), options, self.defaults)
            return IcestreamStreamReader(read.of_schema(schema), follow)

    def writer(self, schema: Any, overwrite: bool) -> IcestreamWriter:
        """The writer of a frame: see `icestream.spark.sink`."""
        from icestream.spark.sink import IcestreamWriter

        defaults = {"memory": str(self.defaults.memory_bytes)}
        return IcestreamWriter({**defaults, **self.options}, schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> IcestreamStreamWriter:  # noqa: N802
        """The writer of a micro-batch: see `icestream.spark.stream_sink`."""
        from icestream.spark.plain_errors import plain_errors
        from icestream.spark.stream_sink import IcestreamStreamWriter

        with plain_errors():
            return IcestreamStreamWriter(self.options, schema, overwrite, self.defaults)
