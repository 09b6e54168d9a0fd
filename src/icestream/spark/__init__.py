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
session.py     a SparkSession with settings that suit Arrow
ship.py        code for executors that lack it
tables.py      a table's name -> the table, through PyIceberg's configuration
types.py       Arrow types -> Spark types             conversion.py  Arrow as Spark wants it
packing.py     many splits -> few tasks, by bytes
register.py    format("icestream") for a session      settings.py  secrets.py  what it sets, hides
source.py      the Python data source                 reader.py  sink.py  its two sides
read_options.py    what options ask for               filters.py  Spark's filters as PyIceberg's
planning.py    a scan -> tasks                        errors.py   our errors, found in Spark's
read.py        plan here, read there: a DataFrame
append.py      overwrite.py  the verbs: written there, committed here, one snapshot
written_frame.py   what they share            frame_schema.py  a frame's columns as Arrow has them
merge.py       the verb   keyed_frame.py  the rows, checked   merge_job.py  the join, and its tasks
stream_reader.py   follows a table: followed_branch.py  stream_offset.py  stream_options.py
stream_sink.py     appends micro-batches, merge_batches.py merges them; once, by stream_id.py
distribution.py (partition_expressions.py)    rows of a partition come together before
table_write.py     a planned write, its commit        task_write.py (task_failure.py)  its tasks
```

PySpark is imported by the functions that need it, when they run.
"""

# These submodules share their names with their functions. Importing them here, first, is what
# makes the functions win: Python sets a submodule's name in its package only once, on loading.
from icestream.spark.append import append
from icestream.spark.merge import merge
from icestream.spark.merge_batches import merge_batches
from icestream.spark.overwrite import overwrite
from icestream.spark.read import read
from icestream.spark.register import register
from icestream.spark.session import session
from icestream.spark.ship import ship

__all__ = ["append", "merge", "merge_batches", "overwrite", "read", "register", "session", "ship"]
