"""Schemas: how the columns of a stream fit the columns of a table.

```
schema_plan.py  freeze, evolve or discard: decided before the first byte is written
comparison.py   the differences between two schemas
conform.py      batches of the stream as batches of the file's schema
columns.py      one column                      nested.py  structs, lists and maps
types.py        which types fit which
sizes.py        how many rows of a batch fit into a number of bytes
```
"""
