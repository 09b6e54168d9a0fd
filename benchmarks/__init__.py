"""Benchmarks of icestream, PyIceberg and other tools. `README.md` describes how to run them.

```
run.py  write.py  merge.py  spark.py         suites: reads, writes, merges, and all of them on Spark
object_store.py  big_load.py                 read-ahead on S3, and loads larger than memory
datasets.py  history.py                      generates the data, and keeps results by version

cases/     one measurement, in a fresh process
data/      rows, streams and tables to measure with
measure/   running cases, memory peaks, results, goals
results/   results by version
```
"""
