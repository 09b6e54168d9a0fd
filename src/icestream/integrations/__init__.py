"""Integrations with other tools. Each module needs its tool, so import it by its name.

```
notebook.py         progress in a notebook
dlt_filesystem.py   dlt's destination `filesystem`, with Iceberg tables written by icestream
dlt_table_load.py   its job: all files of a table in a load become one snapshot (rows: dlt_rows.py)
dlt_destination.py  the older destination for dlt, deprecated
ray.py              reads and writes with Ray Data: `icestream.ray`
ray_tasks.py        what Ray runs in its tasks
torch_loader.py     a dataset for PyTorch's DataLoader, or for workers without PyTorch

pyiceberg_tables/   PyIceberg's own classes, with scans and writes of icestream
```
"""
