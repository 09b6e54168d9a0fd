"""The verbs: each takes a table and commits one snapshot.

A verb builds a `WriteOperation` from a table, the row changes that it makes and its options. The
operation takes in the stream, applies the changes, writes the files and commits them:

    options = WriteOptions(memory="256MB", load_id="2024-05-01")
    WriteOperation(table, Operation.DELETE, MatchingRemoved("id < 10"), options).run(iter(()))

```
append.py  overwrite.py  delete.py  write_files.py  commit_files.py
merge/              update, insert and delete rows by key
upkeep/             compact, orphans, health

write_operation.py  runs a write, from the stream to the commit
write_options.py    the options that all writes share
write_parts.py      what a verb provides: an intake and row changes
row_changes.py      the rows that an overwrite or a delete removes
live_files.py       finds and reads the data files of a branch
kept_tasks.py       scan tasks packed to take little memory
budget_shares.py    divides the memory limit between reading, writing and waiting rows
```
"""
