"""Partitioning: assigns each row of a batch to its partition.

```
partitioner.py   a partition number for each row
transforms.py    Iceberg's transforms, vectorised
murmur3.py       the hash behind `bucket`          decimals.py  decimals as integers
stable_order.py  a stable sort of small integers
spec_text.py     parses `day(ts)` and `price desc`
```
"""
