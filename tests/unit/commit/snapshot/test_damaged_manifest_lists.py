"""A list of manifests that is damaged: every verb says so, and the table stays as it is.

A list that was cut off behind its header is a valid one without manifests. A commit on top of it
would drop all files of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import write_manifest_list
from pyiceberg.table import DataScan, FileScanTask, Table

import icestream as ice
from tests.support.stored import folder_of, stored_files, without_records

_ROWS = pa.table({"id": [1, 2, 3]})
_MORE = pa.table({"id": [3, 4]})


_DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "text that is none": lambda content: content.replace(b'"type"', b'"\xd2ype"', 1),
    "a schema that is none": lambda content: content.replace(b'"fields"', b'"fjelds"', 1),
    "cut in its header": lambda content: content[:100],
    "cut behind its header": without_records,
    "cut in its records": lambda content: content[:-30],
    "empty": lambda _: b"",
}
_VERBS: dict[str, Callable[[Table], object]] = {
    "append": lambda table: ice.append(table, _MORE),
    "overwrite": lambda table: ice.overwrite(table, _MORE),
    "overwrite where": lambda table: ice.overwrite(table, _MORE, where="id > 2"),
    "delete": lambda table: ice.delete(table, "id = 2"),
    "merge": lambda table: ice.merge(table, _MORE, on="id"),
    "compact": lambda table: ice.compact(table, min_files=2),
    "commit_files": lambda table: ice.commit_files(table, ice.write_files(table, _MORE)),
    "scan": lambda table: list(ice.scan(table)),
    "health": ice.health,
    "orphans": lambda table: ice.orphans(table, older_than=0, delete=True),
}
# Files that are the caller's stay for another call, with the marker of their write.
_KEPT = {"commit_files": 2}


@pytest.fixture
def table(catalog: Catalog) -> Table:
    made = catalog.create_table("db.t", _ROWS.schema)
    for _ in range(2):
        ice.append(made, _ROWS)
    return made


def _list_of(table: Table) -> Path:
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    return Path(snapshot.manifest_list.removeprefix("file://"))


@pytest.mark.parametrize("damage", _DAMAGE)
@pytest.mark.parametrize("verb", _VERBS)
def test_every_verb_says_so_and_changes_nothing(table: Table, verb: str, damage: str) -> None:
    path = _list_of(table)
    whole = path.read_bytes()
    files = stored_files(folder_of(table))
    path.write_bytes(_DAMAGE[damage](whole))
    with pytest.raises(ice.IcestreamError) as caught:
        _VERBS[verb](table)
    assert path.name in str(caught.value)
    path.write_bytes(whole)
    left = stored_files(folder_of(table)) - files
    assert len(left) == _KEPT.get(verb, 0)
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [1, 1, 2, 2, 3, 3]
    _VERBS[verb](table)


@pytest.mark.parametrize("damage", _DAMAGE)
def test_what_others_committed_meanwhile_is_looked_at(table: Table, damage: str) -> None:
    other = table.catalog.load_table(table.name())
    damaged: list[Path] = []

    def rows() -> Iterator[pa.RecordBatch]:
        ice.append(other, _MORE)
        path = _list_of(other)
        whole = path.read_bytes()
        ice.append(other, pa.table({"id": [0]}))  # that alone would not be in the way
        path.write_bytes(_DAMAGE[damage](whole))
        damaged.append(path)
        yield from _MORE.slice(0, 0).to_batches()

    source = pa.RecordBatchReader.from_batches(_MORE.schema, rows())
    with pytest.raises(ice.IcestreamError) as caught:
        ice.overwrite(table, source, where="id > 2")
    assert damaged[0].name in str(caught.value)


def test_a_scan_that_plans_in_its_own_way_sees_it_too(table: Table) -> None:
    class Planned(DataScan):
        def plan_files(self) -> list[FileScanTask]:
            return list(super().plan_files())

    scan = table.scan()
    own = Planned(table_metadata=table.metadata, io=table.io, row_filter=scan.row_filter)
    assert sum(batch.num_rows for batch in ice.scan(own)) == 6
    path = _list_of(table)
    path.write_bytes(without_records(path.read_bytes()))
    with pytest.raises(ice.CorruptFileError, match=path.name):
        list(ice.scan(own))


def test_an_empty_list_is_no_damage_whatever_the_counts_say(table: Table) -> None:
    """PyIceberg counts a file that is in a table twice, and is deleted, once."""
    twice = next(iter(ice.scan(table).splits())).path
    table.refresh().add_files([twice], check_duplicate_files=False)
    table.delete()
    table.append(_MORE.slice(0, 0))
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    assert snapshot.manifests(table.io) == []
    assert snapshot.summary is not None
    assert snapshot.summary["total-data-files"] != "0"
    assert list(ice.scan(table)) == []
    assert ice.orphans(table, older_than=0).count == 0
    assert ice.health(table).files == 0
    ice.append(table, _MORE)
    assert sum(batch.num_rows for batch in ice.scan(table)) == 2


def test_a_partition_spec_that_the_table_does_not_have_is_named(table: Table) -> None:
    """One damaged bit can turn the number of a spec into another."""
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    manifests = snapshot.manifests(table.io)
    for manifest in manifests:
        manifest[2] = 50
    assert [manifest.partition_spec_id for manifest in manifests] == [50, 50]
    output = table.io.new_output(snapshot.manifest_list)
    with write_manifest_list(2, output, snapshot.snapshot_id, None, 2, "null") as writer:
        writer.add_manifests(manifests)
    with pytest.raises(ice.CorruptFileError, match="names partition spec 50") as caught:
        list(ice.scan(table))
    assert _list_of(table).name in str(caught.value)
