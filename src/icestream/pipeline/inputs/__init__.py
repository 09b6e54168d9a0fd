"""Inputs: finds the sources and the table of a load before an engine reads and writes them.

```
load_input.py       files and table snapshots to read   load_target.py      the table to write
checkpoint.py       progress of incremental loads       table_increment.py  new rows of a table
postgres_source.py  a PostgreSQL query with ADBC        quarantine.py       rows of bad records
load_identity.py    the load id, derived from options and inputs
```
"""
