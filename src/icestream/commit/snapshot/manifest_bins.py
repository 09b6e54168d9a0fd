"""Which manifests of a table to merge into one, so that commits and plans stay cheap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import TableProperties
from pyiceberg.typedef import Properties

from icestream.commit.outcome.retry import whole_number


@dataclass(frozen=True, slots=True)
class ManifestMerge:
    """How the table properties want manifests to be merged.

    Attributes:
        target_bytes: Size of a merged manifest.
        min_count: Number of small manifests from which on they are merged. None: never merge.
    """

    target_bytes: int
    min_count: int | None

    @classmethod
    def of(cls, properties: Properties) -> ManifestMerge:
        """Read the properties, with the defaults of Iceberg's specification."""
        is_on = str(properties.get(TableProperties.MANIFEST_MERGE_ENABLED, "true")).lower()
        return cls(
            target_bytes=whole_number(
                properties,
                TableProperties.MANIFEST_TARGET_SIZE_BYTES,
                TableProperties.MANIFEST_TARGET_SIZE_BYTES_DEFAULT,
            ),
            min_count=whole_number(
                properties,
                TableProperties.MANIFEST_MIN_MERGE_COUNT,
                TableProperties.MANIFEST_MIN_MERGE_COUNT_DEFAULT,
            )
            if is_on == "true"
            else None,
        )

    def bins(self, manifests: Sequence[ManifestFile]) -> list[list[ManifestFile]]:
        """Group the manifests of one content, newest first. Each group becomes one manifest.

        Full groups are made from the oldest manifests on. The newest manifests, which do not fill
        a group yet, wait until there are `min_count` of them.
        """
        if self.min_count is None:
            return [[manifest] for manifest in manifests]
        by_spec: dict[int, list[ManifestFile]] = defaultdict(list)
        for manifest in manifests:
            by_spec[manifest.partition_spec_id].append(manifest)
        return [group for same in by_spec.values() for group in self._groups(same, self.min_count)]

    def _groups(self, manifests: list[ManifestFile], min_count: int) -> list[list[ManifestFile]]:
        groups: list[list[ManifestFile]] = [[]]
        size = 0
        for manifest in reversed(manifests):
            if groups[-1] and size + manifest.manifest_length > self.target_bytes:
                groups.append([])
                size = 0
            groups[-1].append(manifest)
            size += manifest.manifest_length
        newest = groups.pop()
        if len(newest) < min_count:
            groups += [[manifest] for manifest in newest]
        else:
            groups.append(newest)
        return [group[::-1] for group in reversed(groups)]
