"""The load pipeline: sources -> rows -> one snapshot, by Spark or in this process.

```
source_spec.py   what is read: text, mapping, stream or frame -> SourceSpec
choice.py        closed words
load_spec.py     one load, checked                 load_report.py  what it did
load.py          `load` and `run_load`: all of it in order
state_folder.py  where reports and checkpoints are
```
"""
