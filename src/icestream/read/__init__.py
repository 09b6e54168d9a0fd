"""The read side: a table becomes a stream of Arrow batches inside a byte budget.

```
plan.py        which files, which deletes, which columns        (PyIceberg plans)
split.py       a share of that as plain data, picklable
files.py       open a data file; retry what is transient   prefetch.py  read ahead (S3)
parquet.py     decode page by page                         orc.py       decode flat
prune.py       row groups that statistics rule out
projection.py  file columns -> table columns, by field id
deletes.py     positions that are deleted
rows.py        the row filter, evaluated on Arrow arrays
stream.py      all of the above for one file or run of row groups
sizing.py      how many rows a step, how many streams: measured, not guessed
order.py       many streams -> one, in order or as they come, inside the budget
scan.py        the public face
```
"""
