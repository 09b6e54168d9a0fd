"""Commands that change a table's metadata, or its entry in the catalog.

```
history.py      snapshots, rollback
refs.py         branch, tag
schema.py       schema
table_entry.py  drop, rename
```
"""
