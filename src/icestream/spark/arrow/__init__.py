"""Arrow and Spark: types, batches and frames.

Reads turn a scan's schema into Spark types and its batches into batches that Spark accepts. Writes
go the other way: the schema of a frame becomes the Arrow schema of the rows that tasks get.

```
types.py         Arrow types as Spark types
conversion.py    Arrow batches in the form that Spark accepts
frame_schema.py  a frame's schema as Arrow, and functions over frames with any column names
```
"""
