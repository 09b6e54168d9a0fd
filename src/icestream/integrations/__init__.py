"""Integrations with other tools. Each module needs its tool, so import it by its name.

```
dlt_destination.py  a destination for dlt pipelines
ray.py              reads and writes with Ray Data: `icestream.ray`
ray_tasks.py        what Ray runs in its tasks
torch_loader.py     a dataset for PyTorch's DataLoader, or for workers without PyTorch
```
"""
