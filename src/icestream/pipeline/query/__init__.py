"""SQL over tables by their names, run by DuckDB in this process.

```
table_query.py    runs a query and streams its rows
table_dataset.py  a table as DuckDB reads it: with the columns and filters that the query needs
arrow_filter.py   filters of Arrow as filters of Iceberg
```
"""
