"""A table of several small files, as a loader for training sees it; and workers that are processes.

python -m tests.integrations.table_of_splits PICKLE WORKERS START_METHOD
"""

from __future__ import annotations

import json
import multiprocessing
import pickle
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from icestream.integrations.torch_loader import SplitLoader
from tests.support.data_files import write_parquet_file
from tests.support.tables import commit_files

FILES, FILE_ROWS = 6, 1_000


def make_table(catalog: Catalog) -> Table:
    schema = pa.schema([("id", pa.int64()), ("label", pa.float64())])
    table = catalog.create_table("db.samples", schema)
    written = []
    for number in range(FILES):
        ids = list(range(number * FILE_ROWS, (number + 1) * FILE_ROWS))
        rows = pa.table({"id": ids, "label": [i / 2 for i in ids]}, schema=schema)
        written.append(write_parquet_file(table, rows, row_group_rows=250))
    commit_files(table, written)
    return table.refresh()


def ids(batch: pa.RecordBatch) -> list[int]:
    return batch.column("id").to_pylist()  # type: ignore[no-any-return]


def _read(loader: SplitLoader, worker: int, workers: int, told_by_torch: bool) -> list[int]:
    """What one worker of a DataLoader does."""
    if told_by_torch:
        from torch.utils import data

        data.worker_info = data.WorkerInfo(worker, workers)
        share = loader
    else:
        share = loader.for_worker(worker, workers)
    return [number for numbers in share for number in numbers]


def main(pickled: str, workers: int, method: str) -> None:
    loader: Any = pickle.loads(Path(pickled).read_bytes())
    torch_is_there = "torch" in sys.modules
    context = multiprocessing.get_context(method)
    with context.Pool(workers, maxtasksperchild=1) as pool:
        shares = pool.starmap(
            _read, [(loader, n, workers, torch_is_there) for n in range(workers)], chunksize=1
        )
    result = {"shares": shares, "bases": [base.__name__ for base in SplitLoader.__mro__]}
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
