"""A dataset for training. It shuffles the splits of a scan and distributes them to workers.

```python
splits = ice.scan(table, columns=["features", "label"]).splits(target_bytes="16MB")
loader = SplitLoader(splits, seed=7, memory="128MB", convert=to_tensors)
for epoch in range(10):
    loader.set_epoch(epoch)
    for batch in torch.utils.data.DataLoader(loader, batch_size=None, num_workers=4): ...
```

Without PyTorch, use `for_worker` to select the splits of a worker.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icestream.errors import InvalidArgumentError
from icestream.memory.budget import DEFAULT_MEMORY
from icestream.read.order import Order
from icestream.read.scan import read_splits
from icestream.read.split import Split

if TYPE_CHECKING:
    _IterableDataset: type[Any] = object
else:
    try:  # a DataLoader streams only from subclasses of this class
        from torch.utils.data import IterableDataset as _IterableDataset
    except ModuleNotFoundError:
        _IterableDataset = object


class SplitLoader(_IterableDataset):  # type: ignore[misc]
    """The splits of a scan as an iterable dataset. It is picklable, so workers can be processes.

    In each epoch, all workers together read each row exactly once. The seed and the epoch determine
    the order of splits, which is the same in all workers. Rows within a split stay in order, so
    smaller splits shuffle better.

    Args:
        splits: Splits from `Scan.splits`.
        seed: Seed for shuffling the splits. None keeps their order.
        memory: Maximum number of bytes that each worker holds.
        batch_size: Maximum number of rows in a batch.
        order: Order in which batches are delivered, such as `icestream.ArrivalOrder()`.
        convert: Function that converts each batch, for example to tensors. It must be picklable if
            workers are processes.
        rank: Number of this process in a distributed run, starting at 0.
        ranks: Number of processes in a distributed run.

    Raises:
        InvalidArgumentError: If `rank` is not below `ranks`.

    Memory: `memory` for each worker.
    """

    def __init__(
        self,
        splits: Sequence[Split],
        *,
        seed: int | None = None,
        memory: int | str = DEFAULT_MEMORY,
        batch_size: int | None = None,
        order: Order | None = None,
        convert: Callable[[pa.RecordBatch], Any] | None = None,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        super().__init__()
        _check_share("rank", rank, "ranks", ranks)
        self._splits = tuple(splits)
        self._seed = seed
        self._epoch = 0
        self._convert = convert
        self._rank, self._ranks = rank, ranks
        self._worker: tuple[int, int] | None = None
        self._options: dict[str, Any] = {"memory": memory, "batch_size": batch_size, "order": order}

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch before it begins. Each epoch has its own order of splits."""
        self._epoch = epoch

    def for_worker(self, worker: int, workers: int) -> SplitLoader:
        """Return the loader of one worker, for workers that PyTorch did not start.

        Raises:
            InvalidArgumentError: If `worker` is not below `workers`.
        """
        _check_share("worker", worker, "workers", workers)
        share = copy(self)
        share._worker = (worker, workers)
        return share

    def splits(self) -> list[Split]:
        """Return the splits that this worker reads in this epoch, in order."""
        ordered = list(self._splits)
        if self._seed is not None:
            random.Random(f"{self._seed}:{self._epoch}").shuffle(ordered)
        worker, workers = self._worker or _torch_worker()
        return ordered[self._rank * workers + worker :: self._ranks * workers]

    def __iter__(self) -> Iterator[Any]:
        share = self.splits()
        if not share:
            return
        for batch in read_splits(share, **self._options):
            yield batch if self._convert is None else self._convert(batch)


def _torch_worker() -> tuple[int, int]:
    """Return the number of this DataLoader worker and of all; (0, 1) outside a DataLoader."""
    data = sys.modules.get("torch.utils.data")
    info = data.get_worker_info() if data is not None else None
    return (0, 1) if info is None else (info.id, info.num_workers)


def _check_share(name: str, number: int, of_name: str, of: int) -> None:
    if of < 1 or not 0 <= number < of:
        raise InvalidArgumentError(
            f"{name} is {number} and {of_name} is {of}: {name} must be from 0 to {of_name} - 1"
        )
