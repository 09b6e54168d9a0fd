"""Writers: distribute rows to files by the table's partitioning and sort order.

```
write_context.py         what all writers share
unpartitioned_writer.py  rows in order of arrival
partitioned_writer.py    rows by partition and sort order: open files for clustered rows, spilling
                         for random ones
partition_buffer.py      rows of many partitions in memory
partition_files.py       the open files of partitions
```
"""
