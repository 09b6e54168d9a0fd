"""Integrations with other tools. Each module needs its tool, so import it by its name.

```
notebook.py         progress in a notebook
dlt_destination.py  a destination for dlt pipelines
torch_loader.py     a dataset for PyTorch's DataLoader, or for workers without PyTorch
```
"""
