"""Apply: replaces or deletes the matching rows of the table.

```
row_change.py      decides which rows change, builds the new rows, counts changes
copy_on_write.py   rewrites files with changed rows
merge_on_read.py   writes positions to delete files and new rows to data files
```
"""
