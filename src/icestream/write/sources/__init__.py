"""Sources: everything that holds rows, opened as a stream of Arrow batches.

```
arrow_source.py    any Arrow stream: tables, readers, iterators, `__arrow_c_stream__`
file_stream.py     files as one stream
formats.py         the registry of file formats
file_store.py      finds and opens files on a disk or in an object store
source_file.py     a file, or a part of it, that a load reads
file_columns.py    the columns and types of many files, decided once
file_rows.py       reads files as batches of these columns
hive_partition.py  columns in folder names (`year=2025/month=12`)
stored_batches.py  reads Parquet, ORC and Arrow files (ipc_messages.py: sizes of Arrow's batches)
text/              reads CSV and JSON
batch_columns.py   batches with the columns of a load
bad_record.py      a line that can't be read
```
"""
