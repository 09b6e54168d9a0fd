"""A table as a dataset for training: splits are shared out among workers, and shuffled by epoch.

```python
splits = ice.scan(table, columns=["features", "label"]).splits(target_bytes="16MB")
loader = SplitLoader(splits, seed=7, memory="128MB", convert=to_tensors)
for epoch in range(10):
    loader.set_epoch(epoch)
    for batch in torch.utils.data.DataLoader(loader, batch_size=None, num_workers=4): ...
```

PyTorch is not needed: then `for_worker` says which share to read.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icestream.errors import InvalidArgumentError
from icestream.memory import DEFAULT_MEMORY
from icestream.read.order import Order
from icestream.read.scan import read_splits
from icestream.read.split import Split

if TYPE_CHECKING:
    _IterableDataset: type[Any] = object
else:
    try:  # A DataLoader takes as a stream only what is derived from this.
        from torch.utils.data import IterableDataset as _IterableDataset
    except ModuleNotFoundError:
        _IterableDataset = object


class SplitLoader(_IterableDataset):  # type: ignore[misc]
    """Splits of a scan as an iterable dataset; picklable, so that workers may be processes.

    Every epoch has each row exactly once among all workers. The order of splits is drawn from the
    seed and the epoch, the same in all workers; rows stay in order within a split, so that smaller
    splits shuffle better.

    Args:
        splits: From `Scan.splits`.
        seed: Shuffles the splits; None leaves them in the order of the plan.
        memory: The most bytes that each worker holds.
        batch_size: The most rows in a batch.
        order: As of `icestream.scan`.
        convert: What becomes of each batch, such as tensors; must be picklable for processes.
        rank: The number of this process in a distributed run of `ranks`.
        ranks: How many there are.

    Raises:
        InvalidArgumentError: If rank and ranks do not fit.

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
        """Name the epoch, before it begins: each has an order of its own."""
        self._epoch = epoch

    def for_worker(self, worker: int, workers: int) -> SplitLoader:
        """The share of one of several workers, where PyTorch does not say which one this is.

        Raises:
            InvalidArgumentError: If there is no such worker.
        """
        _check_share("worker", worker, "workers", workers)
        share = copy(self)
        share._worker = (worker, workers)
        return share

    def splits(self) -> list[Split]:
        """What this worker reads in this epoch, in order."""
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
    """Which of a DataLoader's workers this is; the only one, outside of them."""
    data = sys.modules.get("torch.utils.data")
    info = data.get_worker_info() if data is not None else None
    return (0, 1) if info is None else (info.id, info.num_workers)


def _check_share(name: str, number: int, of_name: str, of: int) -> None:
    if of < 1 or not 0 <= number < of:
        raise InvalidArgumentError(
            f"{name} is {number} and {of_name} is {of}: numbers begin with 0, below {of_name}"
        )
