"""Decoding: from a data file to Arrow batches, a few rows at a time.

`layout.py` computes what decoding takes before a reader is opened. `sizing.py` chooses the number
of rows for each step. The readers decode one step at a time.

```
files.py        opens files, retries transient errors, raises typed errors
prefetch.py     reads ahead on object stores        avro_block.py  reads Avro files by block
parquet.py      decodes Parquet page by page       orc.py     decodes ORC without reading ahead
footer.py       leases the memory of a Parquet footer before it is parsed, and checks its seal
pages.py        the sizes of pages              layout.py  memory for decoding row groups
sizing.py       the number of rows in a step    spread.py  expands dictionaries in parts
```
"""
