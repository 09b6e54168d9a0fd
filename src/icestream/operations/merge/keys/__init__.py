"""Keys: decide which rows match.

```
key_columns.py  the columns of the key         key_range.py    lowest and highest keys
key_hash.py     keys as 64- or 128-bit hashes  key_index.py    finds rows by the hash of their key
equality.py     compares values                own_columns.py  columns that are not written
```
"""
