"""Writing frames: tasks write files, and the driver commits them.

A write is planned against the table, its frame is distributed to tasks, each task writes its rows,
and the driver commits all files as one snapshot. A merge first adds keys to the rows and joins
them with the keys in the table's files.

```
store_assignment.py       casts of columns to the types of a table
written_frame.py          plans, runs and commits a frame, for append and overwrite
direct_rows.py            rows that tasks read themselves, instead of a frame
table_write.py            a planned write, its commit and its cleanup
write_jobs.py             runs the jobs of a write, and deletes the files of jobs that fail
distribution.py           which rows go to which task
partition_expressions.py  a table's partition values as Spark expressions
keyed_frame.py            the rows of a merge with their keys
merge_job.py              the join that finds matches, and the tasks that apply them
rewrite_job.py            tasks that read and rewrite files, for deletes and overwrites
update_job.py             expressions over the rows of an update, and the tasks that apply them
removal_task.py           a task that removes rows of its files
compact_job.py            tasks that rewrite groups of small files
```
"""
