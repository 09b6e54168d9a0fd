"""The functions of `icestream.spark`: each is one operation on a table, run by Spark's tasks.

```
read_table.py       reads a table as a DataFrame
append_frame.py     appends a DataFrame
overwrite_frame.py  replaces rows with those of a DataFrame
merge_frame.py      merges a DataFrame by key
stream_merge.py     merges the micro-batches of a stream
delete_rows.py      deletes the rows that match a filter
update_rows.py      sets columns of rows by expressions
compact_table.py    rewrites small files
table_orphans.py    finds and deletes orphan files
```
"""
