"""Projection: from the columns of a file to the columns that the scan returns.

`compile_projection` matches columns by field id once for each file schema. The result is then
called for each batch, and the row filter is evaluated on the projected batch.

```
projection.py  matches columns by field id
conversion.py  type promotions
row_filter.py  the filter, evaluated on Arrow arrays
reshape.py     masks and transforms of the rows that are left
origin.py      the metadata columns `_file`, `_pos`, `_partition` and `_spec_id`
```
"""
