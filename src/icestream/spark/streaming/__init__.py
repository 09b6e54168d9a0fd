"""Structured Streaming: follows the snapshots of a table, and writes each micro-batch exactly once.

A reader follows a branch and turns new snapshots into micro-batches. Spark stores its offsets in
the checkpoint. A sink commits each micro-batch with an id that consists of the stream's name and
the batch number, so a batch that Spark runs again is not written twice.

```
stream_options.py   parses the options of a streaming read
stream_reader.py    plans micro-batches for Spark
followed_branch.py  lists the snapshots of a branch, and their files
stream_offset.py    the position of a stream
stream_sink.py      writes micro-batches
stream_id.py        the name of a stream that writes
```
"""
