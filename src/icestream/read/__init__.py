"""Reading: turn a table into a stream of Arrow batches within a memory limit.

```python
with icestream.scan(table, where="price > 10", memory="64MB") as batches:
    for batch in batches:
        ...
```

`scan` checks its arguments (`request.py`). `plan/` finds the data files and their deletes, and
`decode/`, `project/` and `deletes/` turn each file into batches of the table's schema. `deliver/`
does this for many files in parallel and merges the batches into one stream.

```
scan.py      `scan` and `read_splits`        order.py     TaskOrder, ArrivalOrder
request.py   the arguments, checked          located.py   rows with their file and position
split.py     a part of a scan, picklable     distant_years.py  years before 1 and after 9999

plan/        the files to read, and the deletes that apply to each
decode/      data files to Arrow batches, a few rows at a time
project/     columns of files to columns of the scan
filters/     row filters as text, fitted to columns
deletes/     the deleted rows of each file
deliver/     many files, decoded in parallel, as one stream
results/     the rows of a scan as a table, a data frame or a count; predictions of a scan
observed_scan.py  logs and telemetry of a scan
```
"""

from icestream.report.other_names import answer_calls

answer_calls(__name__)
