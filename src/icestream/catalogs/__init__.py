"""Catalogs and stores: how icestream reaches tables and files through PyIceberg.

`load_table` finds a table by its name. `table_access` gives access to its files, and asks the
catalog for new credentials when they expire:

```python
table = load_table("db.orders", catalog="prod")
io = table_access(table)
```

```
lookup.py           finds catalogs and tables by name; the local catalog
credentials.py      credentials of a store, renewed by the catalog when they expire
configuration.py    mistakes in PyIceberg's configuration file, with their lines
arrow_io.py         PyIceberg's file access, without modules that take much memory
file_access.py      the properties of a FileIO that may be sent to a worker
redaction.py        addresses and messages without passwords and keys
failed_creation.py  removes what a failed load has created
_pyiceberg/         the only code that touches PyIceberg's private names
```
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icestream.catalogs.lookup import list_tables as list_tables
    from icestream.catalogs.lookup import load_table as load_table
    from icestream.catalogs.lookup import make_local_catalog as make_local_catalog
    from icestream.catalogs.lookup import open_catalog as open_catalog

__all__ = ["list_tables", "load_table", "make_local_catalog", "open_catalog"]


def __getattr__(name: str) -> Any:
    """Import the public functions on first use: workers need other parts of this package only."""
    if name in __all__:
        return getattr(import_module("icestream.catalogs.lookup"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
