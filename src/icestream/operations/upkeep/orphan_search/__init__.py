"""The search for orphans: a file is deleted only if no table can need it.

```
orphan_search.py  the search                 candidates.py  files that may be orphans
references.py     files that tables refer to  name_set.py    a compact set of their names
own_versions.py   metadata files of the table itself
other_tables.py   tables that share the folder (metadata_file.py, catalog_tables.py)
verdicts.py       decides whether an unreferenced file is kept
```
"""
