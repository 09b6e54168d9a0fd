"""Text files: their lines, and what is in them.

```
text_format.py     parses CSV and JSON, one record on a line
text_lines.py      blocks of whole lines, and bad lines
text_content.py    which syntax and which encoding a file has; refuses files that are not text
json_documents.py  JSON arrays and records over several lines, as lines
```
"""
