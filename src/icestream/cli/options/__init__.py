"""Options that several commands share, and the types of their values.

```
settings.py        values of --catalog, --memory, --json ..., and what commands do with them
parameters.py      value types: columns, times, ages, properties, table names
change_options.py  options of the commands that change a table
```
"""
