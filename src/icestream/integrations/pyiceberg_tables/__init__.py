"""PyIceberg's tables, scans, transactions and catalogs, with icestream's reads and writes.

They are subclasses of PyIceberg's classes, so that code written for PyIceberg runs unchanged.

```
table.py        Table, and icestream.table()
transaction.py  Transaction: several writes, one snapshot
scan.py         DataScan and IncrementalAppendScan
arrow_scan.py   ArrowScan, which reads tasks
catalog.py      Catalog, and icestream.load_catalog()
writes.py       append, overwrite, delete and upsert, of tables and of transactions
```
"""
