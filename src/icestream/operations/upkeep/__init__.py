"""Upkeep: verbs that improve how a table is stored without changing its rows.

```
compact.py  orphans.py  health.py   the verbs
groups.py                           selects the files that compact rewrites together
delete_files.py                     finds delete files that no longer apply to a data file
advice.py  partition_sizes.py       the advice and the partition sums of health
manifest_entries.py                 reads the manifests of any snapshot, entry by entry
folder.py  path_keys.py             list files; decide whether two paths are the same file
markers.py                          the markers of unfinished writes
metadata/                           branches, tags, rollback, schema, drop, rename
orphan_search/                      finds the files that orphans may delete
```
"""
