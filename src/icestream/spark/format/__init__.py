"""`format("icestream")`: reads and writes with Spark's own API.

Spark runs the data source in separate Python processes: one plans, tasks read or write, and another
one commits. Only the processes that plan and commit get the catalog's credentials.

```
read_options.py  parses the options of reads
table_read.py    a read by options: table, scan and shares, for batches and for streams
reader.py        plans a batch read, and applies filters instead of Spark
filters.py       translates Spark's filters to PyIceberg expressions
sink.py          plans, runs and commits a write
```
"""
