"""Iceberg on Spark without a jar: the executors' Python workers read and write tables.

```python
import icestream.spark as ice_spark

spark = ice_spark.session(memory="256MB")  # per task; or use your own session
frame = ice_spark.read(spark, "sales.orders", where="price > 10", columns=["id", "price"])
frame.groupBy("id").count().show()
ice_spark.append(frame, "sales.expensive")  # one snapshot, committed here
```

```
data_source.py    `format("icestream")`
errors.py         converts Spark's errors back to icestream's

verbs/       the functions of this package
setup/       starts a session and sends icestream's code to executors
arrow/       converts types, batches and schemas between Arrow and Spark
tasks/       the code that runs on executors
statements/  SQL statements: `sql`
writing/     writes a frame to files and commits them
format/      reads and writes with Spark's own API
streaming/   Structured Streaming
```

Functions import PySpark only when they run. Importing this package must be cheap, because Spark
starts a Python process for each step of a plan, and each process imports the package.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from icestream.spark.setup.registration import register
    from icestream.spark.setup.shipping import ship
    from icestream.spark.setup.spark_session import session
    from icestream.spark.statements.run import sql
    from icestream.spark.verbs.append_frame import append
    from icestream.spark.verbs.compact_table import compact
    from icestream.spark.verbs.delete_rows import delete
    from icestream.spark.verbs.merge_frame import merge
    from icestream.spark.verbs.overwrite_frame import overwrite
    from icestream.spark.verbs.read_table import read
    from icestream.spark.verbs.stream_merge import merge_batches
    from icestream.spark.verbs.table_orphans import orphans
    from icestream.spark.verbs.update_rows import update

# A module must not have the name of a function: importing it would replace the function here.
_HOME_OF = {
    "append": "verbs.append_frame",
    "compact": "verbs.compact_table",
    "delete": "verbs.delete_rows",
    "merge": "verbs.merge_frame",
    "merge_batches": "verbs.stream_merge",
    "orphans": "verbs.table_orphans",
    "overwrite": "verbs.overwrite_frame",
    "read": "verbs.read_table",
    "register": "setup.registration",
    "session": "setup.spark_session",
    "ship": "setup.shipping",
    "sql": "statements.run",
    "update": "verbs.update_rows",
}

__all__ = [
    "append",
    "compact",
    "delete",
    "merge",
    "merge_batches",
    "orphans",
    "overwrite",
    "read",
    "register",
    "session",
    "ship",
    "sql",
    "update",
]


def __getattr__(name: str) -> _Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'icestream.spark' has no attribute {name!r}")
    from icestream.report.other_names import with_known_arguments

    function = getattr(_import_module(f"icestream.spark.{_HOME_OF[name]}"), name)
    value = with_known_arguments(function, __name__)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
