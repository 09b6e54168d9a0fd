"""The Python data source behind `format("icestream")`.

`icestream.spark.read` has planned before Spark sees anything, and hands its plan over in an option.
`spark.read.format("icestream")` plans here, in the Python process that Spark starts for it.
"""

from __future__ import annotations

import base64
import pickle
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from icestream.errors import IcestreamError
from icestream.spark.planning import SessionDefaults, TaskPlan
from icestream.spark.read_options import ReadOptions
from icestream.spark.reader import PinnedTable, PushingReader, ShareReader, TableRead, TableReader
from icestream.spark.secrets import PLAN_OPTION
from icestream.spark.sink import IcestreamWriter

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
        with _plain_errors():
            options = ReadOptions.of(self.options)
            self._pinned = PinnedTable.load(options)
            return TableRead(self._pinned, options, self.defaults).schema()

    def reader(self, schema: StructType) -> ShareReader:
        """The reader of the plan in the options, or one that makes a plan."""
        # Spark sends this object along with every task: let it hold neither the plan of them all
        # nor the table, and no credentials.
        given = dict(self.options)
        self.options.clear()
        pinned, self._pinned = self._pinned, None
        if PLAN_OPTION in given:
            return ShareReader(plan_of_option(given[PLAN_OPTION]))
        with _plain_errors():
            options = ReadOptions.of(given)
            read = TableRead(pinned or PinnedTable.load(options), options, self.defaults)
            kind = PushingReader if options.push_filters else TableReader
            return kind(read.of_schema(schema))

    def writer(self, schema: Any, overwrite: bool) -> IcestreamWriter:
        """The writer of a frame: see `icestream.spark.sink`."""
        return IcestreamWriter(self.options, schema, overwrite)


def option_of_plan(plan: TaskPlan) -> str:
    """The plan as text, which is what options are."""
    return base64.b64encode(zlib.compress(pickle.dumps(plan))).decode("ascii")


def plan_of_option(text: str) -> TaskPlan:
    """The plan that `option_of_plan` wrote."""
    plan: TaskPlan = pickle.loads(zlib.decompress(base64.b64decode(text)))
    return plan


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Have our errors end alone: Spark shows what they were caused by, with all it holds."""
    try:
        yield
    except IcestreamError as error:
        error.__cause__ = None
        error.__suppress_context__ = True
        raise
