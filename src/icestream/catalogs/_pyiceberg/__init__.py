"""The only code that touches PyIceberg's private names.

Each private name has a test in tests/unit/catalogs/_pyiceberg/test_private_names.py that fails when
PyIceberg changes it. For a new minor version of PyIceberg only this package has to change.

```
manifests.py         exact partition values, metrics, writers
commits.py           requests to the catalog
staging.py           changes inside a PyIceberg transaction
late_transaction.py  a transaction that creates its snapshots at the commit
timeouts.py          limits for requests
stores.py            streams and file systems
```
"""
