"""Advice that follows from the figures of a table."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from icestream.operations.upkeep.advice import advise

_SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        (
            {"snapshots": 101, "oldest_snapshot_ms": 0},
            "keeps 101 snapshots and all their files, the oldest from 1970",
        ),
        ({"metadata_bytes": 9 << 20}, "the metadata file has 9.4 MB"),
        ({"manifests": 501, "manifest_bytes": 501}, "501 manifests"),
        ({"partitions": 1_000, "bytes": 10**9}, "1,000 partitions have 1 MB on average"),
        ({"partitions": 20, "bytes": 10**12}, "holds 60% of the bytes"),
        ({"delete_files": 11, "position_deletes": 11}, "11 delete files"),
        ({"equality_deletes": 7}, "equality deletes hold 7 rows"),
        ({"compactable_files": 9}, "9 files are smaller"),
        ({"writes_dead": 2}, "2 writes probably died"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_advice_follows_from_the_figures(
    catalog: SqlCatalog, figures: dict[str, int], words: str
) -> None:
    report = replace(ice.health(catalog.create_table("db.t", _SCHEMA)), files=50, rows=10**6)
    assert advise(report) == ()
    largest = figures.get("bytes", 0) * 6 // 10 if figures.get("partitions") == 20 else 0
    partition = ice.PartitionHealth("part=a", 0, 1, 0, 1, largest)
    report = replace(report, largest_partitions=(partition,), **figures)  # type: ignore[arg-type]
    (sentence,) = advise(report)
    assert words in sentence
