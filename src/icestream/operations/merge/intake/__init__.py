"""Intake: reads the stream of a merge once, resolves duplicate keys, and keeps the rows.

```
incoming.py        the rows by key, in memory or in 256 buckets on disk
duplicate_keys.py  rows of the stream with the same key: an error, or the last one is used
grouped_rows.py    rows in numbered groups, such as buckets
stream_rows.py     the rows of a batch with their keys
```
"""
