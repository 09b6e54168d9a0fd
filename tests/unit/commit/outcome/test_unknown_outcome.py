"""Whether a request of a commit may still land, which decides whether its files are deleted."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.commit.outcome.retry import Backoff
from icestream.commit.outcome.unknown_outcome import CommitRequests, refreshed
from tests.support.loads import head_of, ids, make_table

_SNAPSHOT_ID = 7


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = make_table(catalog)
    ice.append(table, ids(0, 1))
    return table


@pytest.fixture
def requests(table: Table) -> Iterator[CommitRequests]:
    """Requests to a catalog that may still execute them after an error."""
    with mock.patch(
        "icestream.commit.outcome.unknown_outcome.has_ended", lambda error, _: error is _ENDED
    ):
        yield CommitRequests(table.catalog, "db.t", "main", _SNAPSHOT_ID)


_LOST = ConnectionError("lost")
_ENDED = ConnectionError("ended")


def _send(requests: CommitRequests, table: Table, error: Exception | None = None) -> None:
    metadata = table.metadata
    parent_id = head_of(table).snapshot_id
    try:
        with requests.sending(parent_id, metadata.next_sequence_number()):
            if error is not None:
                raise error
    except ConnectionError:
        pass


def _quick() -> Backoff:
    return Backoff.of({"commit.retry.min-wait-ms": "0", "commit.retry.max-wait-ms": "0"})


def test_before_the_first_request_nothing_can_be_in_the_table(requests: CommitRequests) -> None:
    assert not requests.may_be_in_table
    assert requests.settle(_LOST, lambda: 1 / 0, _quick()) is None  # It does not even look.


def test_an_accepted_request_is_in_the_table(requests: CommitRequests, table: Table) -> None:
    _send(requests, table)
    assert requests.may_be_in_table
    assert requests.count == 1


def test_a_request_that_got_no_answer_may_land_until_the_branch_has_moved(
    requests: CommitRequests, table: Table
) -> None:
    _send(requests, table, _LOST)
    assert requests.found_in(refreshed(table)) is None
    assert requests.may_be_in_table
    ice.append(table, ids(1, 2))
    assert requests.found_in(refreshed(table)) is None
    assert not requests.may_be_in_table


def test_a_request_that_has_ended_can_not_land_once_a_look_has_shown_it(
    requests: CommitRequests, table: Table
) -> None:
    _send(requests, table, _ENDED)
    assert requests.may_be_in_table
    assert requests.found_in(refreshed(table)) is None
    assert not requests.may_be_in_table


def test_each_of_several_requests_must_be_past(requests: CommitRequests, table: Table) -> None:
    _send(requests, table, _LOST)
    ice.append(table, ids(1, 2))
    _send(requests, table, _LOST)
    requests.found_in(refreshed(table))
    assert requests.may_be_in_table
    ice.append(table, ids(2, 3))
    requests.found_in(refreshed(table))
    assert not requests.may_be_in_table


def test_a_history_that_has_expired_does_not_show_whether_it_landed(
    requests: CommitRequests, table: Table
) -> None:
    _send(requests, table, _ENDED)
    parent_id = head_of(table).snapshot_id
    for number in (1, 2):
        ice.append(table, ids(number, number + 1))
    first, second, _ = table.refresh().metadata.snapshots
    assert first.snapshot_id == parent_id
    table.maintenance.expire_snapshots().by_ids([first.snapshot_id, second.snapshot_id]).commit()
    assert requests.found_in(refreshed(table)) is None
    assert requests.is_lost
    assert requests.may_be_in_table


def test_a_snapshot_that_is_there_settles_the_commit(
    requests: CommitRequests, table: Table
) -> None:
    own = CommitRequests(table.catalog, "db.t", "main", head_of(table).snapshot_id)
    own.add(None, 1, _LOST)
    snapshot = own.settle(_LOST, lambda: own.found_in(refreshed(table)), _quick())
    assert snapshot == head_of(table)
    assert own.may_be_in_table


def test_looks_that_settle_nothing_end_with_an_unknown_outcome(
    requests: CommitRequests, table: Table
) -> None:
    _send(requests, table, _LOST)
    looks: list[int] = []

    def look() -> None:
        looks.append(1)
        requests.found_in(refreshed(table))

    with pytest.raises(ice.CommitUnknownError, match="No file was deleted") as caught:
        requests.settle(_LOST, look, _quick())
    assert caught.value.snapshot_id == _SNAPSHOT_ID
    assert len(looks) == 4  # The first look, and three more.


def test_an_error_of_a_look_is_not_taken_for_an_answer(
    requests: CommitRequests, table: Table
) -> None:
    _send(requests, table, _ENDED)
    errors = [TimeoutError("no answer")]

    def look() -> None:
        if errors:
            raise errors.pop()
        requests.found_in(refreshed(table))

    assert requests.settle(_ENDED, look, _quick()) is None
    assert not requests.may_be_in_table


def test_a_table_that_does_not_exist_has_no_snapshot_of_ended_requests(
    requests: CommitRequests, table: Table
) -> None:
    _send(requests, table, _ENDED)
    requests.note_absence(None)
    assert not requests.may_be_in_table
    _send(requests, table, _LOST)
    requests.note_absence(None)
    assert requests.may_be_in_table
