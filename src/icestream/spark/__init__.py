"""Iceberg on Spark through PySpark, with no jar: executors read and write in Python workers.

```python
import icestream.spark as ice_spark

spark = ice_spark.session(memory="256MB")  # per task; a session of your own will do, too
frame = ice_spark.read(spark, "sales.orders", where="price > 10", columns=["id", "price"])
frame.groupBy("id").count().show()
ice_spark.append(frame, "sales.expensive")  # one snapshot, committed here
```

```
installed.py   PySpark, or an error that says how to get it
java.py        a Java for Spark: the machine's, or the one that pip brings
spark_session.py   a SparkSession with settings that suit Arrow
shipping.py    code for executors that lack it
types.py       Arrow types -> Spark types             conversion.py  Arrow as Spark wants it
packing.py     many splits -> few tasks, by bytes
registration.py    format("icestream") for a session  settings.py  secrets.py  what it sets, hides
source.py      the Python data source                 reader.py (share_reader.py)  sink.py
read_options.py    what options ask for               filters.py  Spark's filters as PyIceberg's
planning.py    a scan -> tasks                        errors.py   our errors, found in Spark's
read_table.py  plan here, read there: a DataFrame
append_frame.py  overwrite_frame.py  the verbs: written there, committed here, one snapshot
written_frame.py   what they share            frame_schema.py  a frame's columns as Arrow has them
merge_frame.py the verb   keyed_frame.py  the rows, checked   merge_job.py  the join, and its tasks
stream_reader.py   follows a table: followed_branch.py  stream_offset.py  stream_options.py
stream_sink.py     appends micro-batches, stream_merge.py merges them; once, by stream_id.py
distribution.py (partition_expressions.py)    rows of a partition come together before
table_write.py     a planned write, its commit        task_write.py (task_failure.py)  its tasks
```

PySpark is imported by the functions that need it, when they run. Importing this package is cheap:
Spark starts a Python process for each step of a plan, and each of them imports it anew.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from icestream.spark.append_frame import append
    from icestream.spark.merge_frame import merge
    from icestream.spark.overwrite_frame import overwrite
    from icestream.spark.read_table import read
    from icestream.spark.registration import register
    from icestream.spark.shipping import ship
    from icestream.spark.spark_session import session
    from icestream.spark.stream_merge import merge_batches

# No module is named as a function is: Python would set the module's name in this package.
_HOME_OF = {
    "append": "append_frame",
    "merge": "merge_frame",
    "merge_batches": "stream_merge",
    "overwrite": "overwrite_frame",
    "read": "read_table",
    "register": "registration",
    "session": "spark_session",
    "ship": "shipping",
}

__all__ = ["append", "merge", "merge_batches", "overwrite", "read", "register", "session", "ship"]


def __getattr__(name: str) -> _Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'icestream.spark' has no attribute {name!r}")
    value = getattr(_import_module(f"icestream.spark.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
