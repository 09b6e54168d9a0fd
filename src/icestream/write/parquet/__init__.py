"""Parquet files: rows are buffered as row groups, threads encode them, and files roll by size.

```
parquet_settings.py    the table's `write.parquet.*` properties
dictionary_columns.py  which columns get a dictionary
row_buffer.py          rows that wait until a row group is full
encode_pool.py         threads that encode row groups
parquet_writer.py      one file                 file_metrics.py  its metrics
rolling_writer.py      one file after the other, each of the target size
data_paths.py          where files are stored
```
"""
