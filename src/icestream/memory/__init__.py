"""Memory: the budget that all operations use, and the memory of the process.

Code takes a lease from the budget before it holds bytes, and waits while the budget is used up:

```python
budget = MemoryBudget("64MB")
lease = budget.acquire(1_000_000)
...
lease.release()
```

```
budget.py          MemoryBudget: counts leased bytes, with a share for each scan
allocator.py       returns free pages to the system when the process nears its limit
machine.py         the cores that the process may use, and its resident size
scratch_folder.py  temporary folders; a later process removes those of killed processes
```
"""
