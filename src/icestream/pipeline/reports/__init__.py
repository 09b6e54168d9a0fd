"""Reports of loads and runs, progress while they run, and the state folder.

```
load_report.py    run_report.py    reports that `icestream.load` and `icestream.run` return
load_progress.py  progress and timing of a running load
state_folder.py   stored reports; paths of checkpoints and run states; the state of a load
```
"""
