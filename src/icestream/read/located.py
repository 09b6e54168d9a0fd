"""Rows with the number of their file and their position in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import FileScanTask

from icestream.memory.budget import MemoryBudget
from icestream.read.deletes.position_set import PositionSet
from icestream.read.plan.scan_plan import TaskSplits
from icestream.read.project.origin import FILE_NUMBER
from icestream.read.request import ScanRequest
from icestream.read.scan import scan_of_splits


@dataclass(frozen=True, slots=True)
class Located:
    """Rows of one file.

    Attributes:
        number: The index of the file in the request.
        positions: The position of each row in the file, ascending. Deleted rows are left out.
        rows: The rows.
    """

    number: int
    positions: npt.NDArray[np.int64]
    rows: pa.RecordBatch


def read_located(
    request: ScanRequest,
    tasks: Sequence[FileScanTask],
    *,
    budget: MemoryBudget,
    positions: Sequence[npt.NDArray[np.int64] | PositionSet] | None = None,
) -> Iterator[Located]:
    """Read the undeleted rows of some files, file by file in the given order.

    Args:
        request: Defines the columns. Its filter is not applied.
        tasks: The files.
        budget: The budget for the bytes that reading holds.
        positions: The positions of the rows to read in each file, as an ascending array or a set.
            All rows by default.
    """
    context = replace(
        request.context,
        metadata_columns=(FILE_NUMBER, "_pos"),
        read_schema=request.context.schema,
        row_filter=AlwaysTrue(),
    )
    splits = (
        replace(
            split,
            number=number,
            context=context,
            filtered=False,
            positions=None if positions is None else positions[number],
        )
        for number, split in enumerate(TaskSplits(request, tasks))
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
