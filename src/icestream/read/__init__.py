"""The read side: a table becomes a stream of Arrow batches inside a byte budget.

```
request.py     which snapshot, which columns, which rows: settled before anything is read
planner.py     which files, which deletes, one by one      manifests.py  read block by block
delete_index.py  which deletes apply to a file
plan.py        those files as splits, or as PyIceberg's tasks
split.py       a share of that as plain data, picklable
files.py       open a data file; retry what is transient   prefetch.py  read ahead (S3)
parquet.py     decode page by page                         orc.py       decode flat
prune.py       row groups that statistics rule out
projection.py  file columns -> table columns, by field id
deletes.py     positions that are deleted
rows.py        the row filter, evaluated on Arrow arrays
units.py       a file that is open, and the units that it is decoded in
stream.py      one unit as a stream of finished batches
sizing.py      how many rows a step, how many streams: measured, not guessed
order.py       TaskOrder, ArrivalOrder
merge.py       many streams -> one, in order or as they come, inside the budget
scan.py        the public face
```
"""
