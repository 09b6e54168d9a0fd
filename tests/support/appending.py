"""Processes that append to one table at once, and what became of their rows."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice

ROWS_PER_APPEND = 10
SCHEMA = pa.schema([("writer", pa.int32()), ("number", pa.int64())])


@dataclass(slots=True)
class Appender:
    """What one process did.

    Attributes:
        writer: Which one it is.
        appends: Appends that returned; the rows of each are numbered on.
        attempts: How often their commits were tried, in all.
        in_time: Those of them that began and returned in the time that is measured.
        longest_seconds: The longest that one took.
        cpu_seconds: The process's, for all of them.
        errors: What reached the caller.
    """

    writer: int
    appends: int = 0
    attempts: int = 0
    in_time: int = 0
    longest_seconds: float = 0.0
    cpu_seconds: float = 0.0
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Together:
    """What all of them did in the time given."""

    appenders: list[Appender]
    seconds: float

    @property
    def errors(self) -> list[str]:
        """Whatever reached a caller."""
        return [error for appender in self.appenders for error in appender.errors]

    @property
    def appends(self) -> int:
        """Appends that returned."""
        return sum(appender.appends for appender in self.appenders)

    @property
    def attempts_per_append(self) -> float:
        """How often a commit was tried before it was in the table."""
        return sum(appender.attempts for appender in self.appenders) / max(1, self.appends)

    @property
    def appends_per_second(self) -> float:
        """The combined rate."""
        return sum(appender.in_time for appender in self.appenders) / self.seconds

    @property
    def longest_seconds(self) -> float:
        """The longest that an append took."""
        return max(appender.longest_seconds for appender in self.appenders)

    def rows(self) -> list[tuple[int, int]]:
        """The rows that must be in the table, in order."""
        return [
            (appender.writer, number)
            for appender in self.appenders
            for number in range(appender.appends * ROWS_PER_APPEND)
        ]


def rows_of(table: Table) -> list[tuple[int, int]]:
    """The rows that are in the table, in order."""
    rows = table.refresh().scan().to_arrow()
    return sorted(zip(rows["writer"].to_pylist(), rows["number"].to_pylist(), strict=True))


def append_together(
    catalog: Mapping[str, str], table: str, *, processes: int, seconds: float
) -> Together:
    """Append small loads to a table from several processes, as fast as they go.

    Args:
        catalog: The properties of a `SqlCatalog`.
        table: A table of `SCHEMA`.
        processes: How many.
        seconds: For how long.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "icestream.operations.append", "sqlalchemy.orm"])
    start, answers = context.Barrier(processes), context.Queue()
    started = [
        context.Process(
            target=_append, args=(dict(catalog), table, writer, seconds, start, answers)
        )
        for writer in range(processes)
    ]
    for process in started:
        process.start()
    try:
        done = [answers.get(timeout=seconds + 120) for _ in started]
    finally:
        for process in started:
            process.join(timeout=30)
            if process.is_alive():
                process.kill()
    return Together(sorted(done, key=lambda appender: appender.writer), seconds)


def _append(
    properties: dict[str, str],
    name: str,
    writer: int,
    seconds: float,
    start: Any,
    answers: Any,
) -> None:
    """Runs in a process of its own."""
    catalog = SqlCatalog("tests", **properties, init_catalog_tables="false")
    table = catalog.load_table(name)
    appender = Appender(writer)
    try:
        _append_once(table, appender)  # Imports do not count.
        start.wait(timeout=100)
        cpu_before, end = time.process_time(), time.monotonic() + seconds
        while (began := time.monotonic()) < end:
            _append_once(table, appender)
            now = time.monotonic()
            appender.in_time += now <= end
            appender.longest_seconds = max(appender.longest_seconds, now - began)
        appender.cpu_seconds = time.process_time() - cpu_before
    except Exception as error:
        appender.errors.append(f"writer {writer}: {type(error).__name__}: {error}")
    answers.put(appender)
    catalog.close()


def _append_once(table: Table, appender: Appender) -> None:
    first = appender.appends * ROWS_PER_APPEND
    numbers = pa.array(range(first, first + ROWS_PER_APPEND), pa.int64())
    writers = pa.array([appender.writer] * ROWS_PER_APPEND, pa.int32())
    report = ice.append(table, pa.table([writers, numbers], schema=SCHEMA))
    appender.appends += 1
    appender.attempts += report.commit_attempts
