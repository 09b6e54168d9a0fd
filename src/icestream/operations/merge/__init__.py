"""Merge: rows of a stream update, delete or insert rows of a table, by key.

```
merge.py          the verb
merge_options.py  its options
merge_plan.py     the options resolved for one table and one stream (row_shape.py, delete_flag.py)
replace_keys.py   replaces all rows of some keys
merge_work.py     the same work in parts that any worker can do: Spark uses it

intake/           1. read the stream once and keep its rows, in memory or on disk
keys/                key columns, hashes, ranges and the index
match/            2. find the files that may match and the rows that do
apply/            3. write the changed rows: copy-on-write or merge-on-read
```
"""
