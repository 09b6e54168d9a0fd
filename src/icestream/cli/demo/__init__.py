"""The parts of `icestream demo`, which loads a table and reads it with icestream and PyIceberg.

```
demo_folder.py     the folder with the data, the catalog and the pictures
order_files.py     generates the orders and their changes
pipeline.yaml      the pipeline that loads them
memory_trace.py    reads the table in another process, and records its memory
measured_read.py   the script that this process runs
memory_picture.py  draws the memory over time, as text and as SVG
```
"""
