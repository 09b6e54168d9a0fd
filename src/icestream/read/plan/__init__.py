"""Planning: the files that a scan reads, and the deletes that apply to each.

The planner reads manifests one by one and hands files on before it reads the next manifest.

```
scan_plan.py       the files of a scan as splits, or as PyIceberg's tasks
planner.py         finds data files and matches them with their deletes
found_files.py     finds the files in data manifests, here or in workers
manifests.py       reads manifests and manifest lists block by block
file_predicate.py  whether a file may contain rows that match the filter
prune.py           whether a row group may contain rows that match the filter
splitting.py       cuts large files at row groups
```
"""
