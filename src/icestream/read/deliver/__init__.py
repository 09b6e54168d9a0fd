"""Delivery: many files, decoded in parallel, become one stream within the budget.

Workers take units from the line, decode them as streams, and put finished batches back into the
line. The consumer takes the batches from there.

```
units.py        an open file and its units: runs of row groups, or a whole ORC file
stream.py       one unit as a stream of finished batches
file_queue.py   files and units in plan order, with their finished batches
batch_merge.py  the worker threads, and the consumer's side
at_exit.py      closes reads that are still open when the interpreter ends
```
"""
