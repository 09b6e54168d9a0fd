"""A stream that a cluster can't read where it is."""

import pyarrow as pa
import pytest

from icestream.errors import MemoryBudgetError
from icestream.pipeline.engines.spark_frame import hold_stream
from icestream.pipeline.request.source_spec import parse_sources

_BATCH = pa.record_batch({"id": list(range(1024))})  # 8 KiB
(_SOURCE,) = parse_sources(_BATCH)


def test_it_is_held_if_it_fits() -> None:
    held = hold_stream(iter([_BATCH] * 4), _BATCH.schema, _SOURCE, 32 * 1024)
    assert held.num_rows == 4096


def test_no_more_of_it_is_taken_than_fits() -> None:
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield _BATCH

    with pytest.raises(MemoryBudgetError, match="engine='local'") as raised:
        hold_stream(endless(), _BATCH.schema, _SOURCE, 32 * 1024)
    assert taken == 5
    assert raised.value.limit_bytes == 32 * 1024
