"""The load pipeline: sources -> rows -> one snapshot, by Spark or in this process.

```
source_spec.py   what is read: text, mapping, stream or frame -> SourceSpec
choice.py        closed words
load_spec.py     one load, checked                 load_report.py  what it did
load.py          `load` and `run_load`        load_run.py  all of it in order   stages.py  its time
load_target.py   the table, or that there is none yet
load_input.py    sources, found (file_store, source_file, table_increment, postgres_source)
file_columns.py  columns and types, decided once     file_rows.py  files -> batches
text_format.py   CSV and JSON lines                  text_lines.py  blocks, and bad lines alone
bad_record.py    quarantine.py   what becomes of them
local_engine.py  (local_rows, local_transform)       spark_engine.py  (spark_frame, spark_files)
checkpoint.py    what an incremental load has done
load_plan.py     a dry run    load_progress.py  how far it is
state_folder.py  report_store.py  where reports and checkpoints are

run.py           `run`: the loads of a pipeline (run_order, run_state, run_report, run_plan)
pipeline_file.py the file (located_yaml, variables)
audited_load.py  write, audit, publish             publish.py  the branch   new_audited_table.py
checks.py        tests on a result (local_checks, spark_checks, checked_columns, repeated_keys)
```
"""
