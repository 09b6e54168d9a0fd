"""Writing: a stream of Arrow batches becomes data files of the table, not committed yet.

```
source -> schema -> conform -> partition -> row buffer -> Parquet file -> NewFile
```
"""
