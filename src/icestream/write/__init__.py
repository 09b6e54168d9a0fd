"""Writes: a stream of Arrow batches becomes data files that are not committed yet.

```
table_writer.py      the whole package behind one writer
target.py            the table for writers: picklable
new_file.py          a file that is not committed yet: picklable
position_deletes.py  position delete files

sources/     1. everything that holds rows, as a stream of Arrow batches
rules/          a load's choice of rows and columns, before they are written
schema/      2. converts the stream's columns to the table's columns
partition/   3. finds the partition of each row
writers/     4. distributes rows to files by partition and sort order (spill/: on disk if needed)
parquet/     5. writes row groups and files of the right size
```
"""

from icestream.report.other_names import answer_calls

answer_calls(__name__)
