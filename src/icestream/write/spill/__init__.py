"""Spilling: sorts rows on disk when they don't fit into memory.

```
spill.py        sorted runs on disk, and their merge
run_file.py     one run, as compressed Arrow IPC
sort_keys.py    compares rows by a sort order
sorted_rows.py  sorts rows in memory
```
"""
