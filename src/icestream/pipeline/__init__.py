"""The load pipeline: reads sources and writes them to a table, on Spark or in this process.

`load` runs one load. `run` runs the loads of a pipeline file, each as `load` does:

```python
import icestream as ice

ice.load("data/*.parquet", "db.t", engine="local")
```

```
load.py       `load`                      load_execution.py  its steps   load_plan.py  a dry run
run.py        `run`: a pipeline file      run_order.py  dependencies     run_plan.py   a dry run
run_state.py  progress of a run on disk, so that the next run can resume it

request/      parses and validates the arguments
inputs/       finds the files, snapshots and table of a load
engines/      reads and writes the rows: in this process, or on Spark
audit/        tests the rows on a branch before they are published
query/        SQL over tables by name, run by DuckDB
reports/      reports, progress and the state folder
```
"""

from icestream.report.other_names import answer_calls

answer_calls(__name__)
