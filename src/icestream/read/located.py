"""Rows that know where they are: the number of their file, and their position in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.table import FileScanTask

from icestream.memory import MemoryBudget
from icestream.read.origin import FILE_NUMBER
from icestream.read.plan import TaskSplits
from icestream.read.request import ScanRequest
from icestream.read.scan import scan_of_splits


@dataclass(frozen=True, slots=True)
class Located:
    """Rows of one file.

    Attributes:
        number: Which of the files that were asked for.
        positions: Where each row is in the file, ascending; deleted rows are left out.
        rows: The rows.
    """

    number: int
    positions: npt.NDArray[np.int64]
    rows: pa.RecordBatch


def read_located(
    asked: ScanRequest,
    tasks: Sequence[FileScanTask],
    *,
    budget: MemoryBudget,
    positions: Sequence[npt.NDArray[np.int64]] | None = None,
) -> Iterator[Located]:
    """The rows of some files that are not deleted, file by file in the order given.

    Args:
        asked: Which columns; its filter is not applied.
        tasks: The files.
        budget: Bounds what reading holds.
        positions: The only rows of each file that are wanted, ascending; all by default.
    """
    context = replace(
        asked.context,
        metadata_columns=(FILE_NUMBER, "_pos"),
        read_schema=asked.context.schema,
    )
    splits = (
        replace(
            split,
            number=number,
            context=context,
            filtered=False,
            positions=None if positions is None else positions[number],
        )
        for number, split in enumerate(TaskSplits(asked, tasks))
    )
    with scan_of_splits(splits, context, budget) as batches:
        for batch in batches:
            *columns, files, places = batch.columns
            schema = pa.schema([batch.schema.field(n) for n in range(len(columns))])
            yield Located(
                files[0].as_py(),
                places.to_numpy(),
                pa.RecordBatch.from_arrays(columns, schema=schema),
            )
            del batch, columns, files, places
