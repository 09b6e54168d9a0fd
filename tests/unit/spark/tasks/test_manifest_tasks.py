"""How many manifests the tasks of one job read: the answers of a job are held at once."""

from __future__ import annotations

import pytest
from pyiceberg.manifest import ManifestContent, ManifestFile

from icestream.spark.tasks.manifest_tasks import _waves

_LENGTH = 8 << 20
_MOST_BYTES = 32_000_000


def _manifests(count: int, files: int | None) -> list[ManifestFile]:
    return [
        ManifestFile.from_args(
            content=ManifestContent.DATA,
            manifest_path=f"s3://b/{number:06d}.avro",
            manifest_length=_LENGTH,
            partition_spec_id=0,
            sequence_number=0,
            added_snapshot_id=1,
            added_files_count=files,
            existing_files_count=None if files is None else 0,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("files", "has_bounds", "manifests"),
    [(20_000, False, 25), (None, False, 4), (20_000, True, 4), (200_000, True, 3)],
    ids=["counted", "not counted, as in format version 1", "long bounds", "many files"],
)
def test_the_expected_answers_of_a_job_fit_into_its_part_of_the_limit(
    files: int | None, has_bounds: bool, manifests: int
) -> None:
    waves = list(_waves(_manifests(100, files), 64, _MOST_BYTES, has_bounds=has_bounds))
    assert {len(wave) for wave in waves[:-1]} == {manifests}
    assert sum(map(len, waves)) == 100
