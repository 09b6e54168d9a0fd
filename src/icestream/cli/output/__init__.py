"""What commands print and write.

```
text.py         aligned text, colors, sizes, durations, JSON on stdout
messages.py     messages of the library in words of the command line
report_text.py  reports of changes and loads as text
progress.py     progress on stderr
sinks.py        rows as Parquet, CSV, JSON, Arrow or text
cells.py        values as text and JSON
output_file.py  an output file that appears when it is complete
```
"""
