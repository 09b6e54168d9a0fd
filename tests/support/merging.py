"""Processes that merge into one table at once, and what became of their merges."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal
from unittest import mock

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from icestream.operations.merge.match.matches import keys_of_files
from tests.support.loads import before_commits, then
from tests.support.merges import Row, stream

Meeting = Literal["after the streams", "matching", "committing"]
_WAIT_SECONDS = 100


@dataclass(frozen=True, slots=True)
class Merger:
    """What one process merges: a stream for each round."""

    mode: str
    rounds: Sequence[Sequence[Row]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one merge.

    Attributes:
        rows: What was merged.
        snapshot_id: The merge's; None if it was refused or failed.
        refusal: The conflict's message, if it was refused.
        error: Whatever else reached the caller.
    """

    rows: Sequence[Row]
    snapshot_id: int | None = None
    refusal: str | None = None
    error: str | None = None


def merge_together(
    catalog: Mapping[str, str], table: str, mergers: Sequence[Merger], *, meeting: Meeting
) -> list[Outcome]:
    """Merge into a table from several processes, which wait for one another in every round.

    Args:
        catalog: The properties of a `SqlCatalog`.
        table: A table of id, part and text.
        mergers: One for each process; all have the same number of rounds.
        meeting: Where they wait: when the streams have ended and none has looked at the table; when
            all have planned from the same snapshot; or when all are about to ask the catalog.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "sqlalchemy.orm"])
    barrier, answers = context.Barrier(len(mergers), timeout=_WAIT_SECONDS), context.Queue()
    started = [
        context.Process(
            target=_merge_rounds, args=(dict(catalog), table, merger, meeting, barrier, answers)
        )
        for merger in mergers
    ]
    for process in started:
        process.start()
    try:
        done = [answers.get(timeout=_WAIT_SECONDS + 20) for _ in started]
    finally:
        for process in started:
            process.join(timeout=30)
            if process.is_alive():
                process.kill()
    return [outcome for outcomes in done for outcome in outcomes]


def _merge_rounds(
    properties: dict[str, str],
    name: str,
    merger: Merger,
    meeting: Meeting,
    barrier: Any,
    answers: Any,
) -> None:
    """Runs in a process of its own."""
    catalog = SqlCatalog("tests", **properties, init_catalog_tables="false")
    outcomes = []
    for rows in merger.rounds:
        outcomes.append(_merge(catalog, name, rows, merger.mode, meeting, barrier.wait))
        if outcomes[-1].error is not None:
            barrier.abort()  # The others need not wait for this one.
            break
    answers.put(outcomes)
    catalog.close()


def _merge(
    catalog: SqlCatalog,
    name: str,
    rows: Sequence[Row],
    mode: str,
    meeting: Meeting,
    meet: Callable[[], object],
) -> Outcome:
    source: Iterator[pa.RecordBatch] = iter(stream(rows).to_batches())
    if meeting == "after the streams":
        source = then([stream(rows)], meet)
    try:
        with _meeting(catalog, meeting, meet):
            report = ice.merge(catalog.load_table(name), source, on="id", write_mode=mode)
    except ice.CommitConflictError as error:
        return Outcome(rows, refusal=str(error))
    except Exception as error:
        return Outcome(rows, error=f"{type(error).__name__}: {error}")
    return Outcome(rows, snapshot_id=report.snapshot_id)


def _meeting(
    catalog: SqlCatalog, meeting: Meeting, meet: Callable[[], object]
) -> AbstractContextManager[object]:
    if meeting == "committing":
        return before_commits(catalog, meet)
    if meeting == "matching":

        def keys(*of_files: Any) -> Any:
            meet()
            return keys_of_files(*of_files)

        return mock.patch("icestream.operations.merge.merge.keys_of_files", keys)
    return nullcontext()
