"""Tasks: the code that runs on executors, and the data sent to them and back.

A read packs its splits into a plan with one share for each task. A write sends the same plain
object to all tasks, and each task returns one row.

```
shown_work.py       names in plans and descriptions of jobs
shares.py           sends each task its own share
packing.py          packs many splits into few tasks
file_shares.py      packs the data files of a table into shares
task_plan.py        plans the tasks of a scan
planned_frame.py    reads the shares of a plan, as a DataFrame
direct_write.py     reads the share of a task, and writes it or gives it to Spark with keys
matched_rows.py     reads the rows of an update
manifest_tasks.py   reads the manifests of large tables
manifest_answer.py  encodes the files found in manifests
storage_tasks.py    lists folders and deletes files
task_write.py       writes the rows of a task, and returns its result to the driver
plain_record.py     encodes results as plain data
task_notes.py       what a task notes for the driver: its error, and the memory of its worker
```
"""
