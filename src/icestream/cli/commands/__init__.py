"""The commands. Each module has the name of its command; `scan.py` also has `explain`.

Commands that change a table's metadata, or its entry in the catalog, are in `metadata/`.

A command checks its options, calls one function of the library, and prints the report. `main.py`
collects the commands.
"""
