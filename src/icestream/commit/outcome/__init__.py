"""Outcomes: was a commit made, was it refused, or is that unknown?

```
unknown_outcome.py  the requests of a commit, and whether one may still land
retry.py            which errors are worth another try, and how long to wait
load_id.py          loads, and files of `write_files`, that were committed before
```
"""
