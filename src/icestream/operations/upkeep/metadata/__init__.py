"""Changes to a table's metadata and to its entry in the catalog. None of them reads or writes rows.

```
refs.py           create, delete, rename and publish branches and tags
rollback.py       move a branch back to an earlier snapshot
schema_update.py  add, rename, widen and drop columns
table_entry.py    drop and rename tables in the catalog
purge.py          find and delete the files of a table that is dropped
```
"""
