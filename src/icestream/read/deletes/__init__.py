"""Deletes: the deleted rows of each data file.

`DeleteIndex` finds the delete files of a data file while the scan is planned. `DeletedPositions`
reads them when the first split needs them.

```
delete_index.py     the delete files that apply to a data file
delete_files.py     reads position deletes, and keeps them within the budget
deletion_vector.py  reads deletion vectors from Puffin files
position_set.py     positions as compressed bitmaps
```
"""
