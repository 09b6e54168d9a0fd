"""The result of a scan as one object: a table, a data frame, a count, or an asynchronous stream.

`Scan.to_arrow` and its relatives use these modules. The rows that they collect count towards the
memory limit of the scan. A result that does not fit is refused with the limit that would do:

```python
table = collect(iter(scan), collection)
```

```
scan_results.py   the methods of a scan
collected.py      all rows as one Arrow table, inside the limit
conversions.py    the memory that pandas and Polars add, and imports of optional packages
row_count.py      count rows with metadata, or with the columns that are cheapest to read
async_batches.py  batches for `async for`
explain.py        predict from metadata what a scan will do
```
"""
