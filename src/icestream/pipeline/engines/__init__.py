"""Engines: each runs a load, in this process or on Spark, behind the protocol `Engine`.

```
engine.py        the protocol, and the result of a write
local_engine.py  one Arrow stream, written in this process
                 (local_rows.py opens the sources, local_transform.py runs SQL or a function)
spark_engine.py  rows of all sources, written by Spark's tasks
                 (spark_route.py decides whether the tasks read them, too: direct_source.py cuts
                 the sources, partition_sample.py estimates the number of files)
                 (spark_frame.py, spark_files.py, spark_jdbc.py and spark_jars.py read the sources
                 as a DataFrame)
jar/             one DataFrame, written by Iceberg's own runtime
spark_watch.py   progress and memory of Spark's tasks
```
"""
