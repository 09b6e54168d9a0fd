"""Inputs: finds the sources and the table of a load before an engine reads and writes them.

```
load_input.py       files and table snapshots to read   load_target.py      the table to write
checkpoint.py       progress of incremental loads       table_increment.py  new rows of a table
database_source.py  opens a database                quarantine.py       rows of bad records
sqlite_source.py    SQLite files                    duckdb_source.py    DuckDB files
postgres_source.py  PostgreSQL with ADBC            adbc_source.py      other databases with ADBC
load_identity.py    the load id, derived from options and inputs
```
"""
