"""Rules of a load: which rows and columns of a source are loaded, declared or in SQL.

```
column_rules.py   the rules: a row filter, column selection, renames, casts and constants
exact_cast.py     casts that change no value, or name the value that does not fit
stream_filter.py  a row filter over the columns of a stream
duckdb_query.py   SQL over a stream (row_local.py: whether several tasks may run it)
```
"""
