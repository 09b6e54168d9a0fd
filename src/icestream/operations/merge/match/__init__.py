"""Matching: finds the rows of the table that have a key of the stream.

```
candidates.py         selects the files that may match, by metadata
matches.py            reads the keys of these files; the protocol of the two searches
matched_in_memory.py  the search if the stream's rows fit into memory
matched_on_disk.py    the search bucket by bucket
```
"""
