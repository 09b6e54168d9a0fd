"""The engine in this process: `append`, `overwrite` and `merge` over one Arrow stream."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.table import Table, Transaction

from icestream.commit.append import append
from icestream.commit.new_table import TableCreatedError
from icestream.commit.overwrite import overwrite
from icestream.errors import InvalidArgumentError, MemoryBudgetError, SchemaMismatchError
from icestream.memory import DEFAULT_MEMORY, MemoryBudget, parse_bytes
from icestream.pipeline.bad_record import QUARANTINE_SCHEMA
from icestream.pipeline.load_input import LoadInputs
from icestream.pipeline.load_progress import LoadProgress
from icestream.pipeline.load_spec import LoadSpec
from icestream.pipeline.load_target import LoadTarget
from icestream.pipeline.local_rows import LocalRows
from icestream.pipeline.local_transform import LEAST_DUCKDB_BYTES
from icestream.pipeline.quarantine import QuarantineRows, bad_rows
from icestream.report import WriteReport
from icestream.upsert.merge import merge
from icestream.write.source import ArrowSource

_TRIES = 3


@dataclass(frozen=True, slots=True)
class Loaded:
    """What an engine did.

    Attributes:
        write: What became of the table.
        created: Whether the table was created.
        rows_read: Rows of the sources without bad records; None where not known.
        may_be_bad: Whether there may be bad records.
        seconds_finishing: How long it took after the last row; None where not known.
        peak_worker_bytes: The largest resident size of a Python worker; None where not known.
    """

    write: WriteReport
    created: bool
    rows_read: int | None
    may_be_bad: bool
    seconds_finishing: float | None = None
    peak_worker_bytes: int | None = None


class LocalEngine:
    """Runs loads in this process.

    Args:
        spec: The load.
        progress: Kept up to date.

    Raises:
        MemoryBudgetError: If there is SQL, and too little memory for DuckDB.

    Memory: what the load holds, and DuckDB if there is SQL, stay within the load's `memory`.
    """

    def __init__(self, spec: LoadSpec, progress: LoadProgress) -> None:
        self._spec = spec
        self._progress = progress
        whole = parse_bytes(spec.memory if spec.memory is not None else DEFAULT_MEMORY)
        # DuckDB's own limit takes a half where it works.
        self._duckdb_bytes = whole // 2 if isinstance(spec.transform, str) else 0
        if 0 < self._duckdb_bytes < LEAST_DUCKDB_BYTES:
            needed = 2 * LEAST_DUCKDB_BYTES
            raise MemoryBudgetError(
                f"SQL as a transform needs {needed} bytes on the local engine, half of it for "
                f"DuckDB, and memory is {whole}: raise it, or give a function as transform",
                needed_bytes=needed,
                limit_bytes=whole,
            )
        self.memory_bytes = whole
        self._budget = MemoryBudget(whole - self._duckdb_bytes)

    def write(self, inputs: LoadInputs, target: LoadTarget) -> Loaded:
        """Load the rows, as one snapshot."""
        self._progress.begin(inputs.files or None, budget=self._budget)
        rows = LocalRows(self._spec, inputs, self._budget, self._progress, self._duckdb_bytes)
        for last in (False,) * (_TRIES - 1) + (True,):
            watched = _Watched(rows)
            try:
                if target.table is None:
                    report = self._create(watched, target)
                else:
                    source = watched.open if inputs.can_reopen else watched.open()
                    report = self._verb(target.table, source)
            except TableCreatedError:
                if last or not inputs.can_reopen:
                    raise
                table = target.catalog.load_table(target.name)
                target = replace(target, table=table)
                continue
            return Loaded(
                replace(report, memory_limit_bytes=self.memory_bytes),
                created=target.table is None,
                rows_read=0 if report.already_committed else rows.rows,
                may_be_bad=rows.bad > 0 or report.already_committed,
                seconds_finishing=watched.since_end(),
            )
        raise AssertionError("not reached")

    def quarantine(
        self, inputs: LoadInputs, target: LoadTarget, load_id: str | None
    ) -> WriteReport | None:
        """Store the bad records of a load; None if there are none."""
        batches = bad_rows(inputs, QuarantineRows.of(self._spec))
        first = next(batches, None)
        if first is None:
            return None

        def all_batches() -> Any:
            yield first
            yield from batches

        source = ArrowSource(QUARANTINE_SCHEMA, all_batches(), batches.close)  # type: ignore[attr-defined]
        options: dict[str, Any] = {"memory": self._budget, "load_id": load_id}
        if target.table is not None:
            return append(target.table, source, **options)
        plain = LoadSpec(sources=(), into=target.name)
        new = target.new_table(plain, QUARANTINE_SCHEMA)
        transaction = new.transaction(target.catalog)
        report = append(transaction, source, **options)
        new.create(transaction, target.catalog, report.snapshot_id)
        return report

    def _create(self, watched: _Watched, target: LoadTarget) -> WriteReport:
        spec = self._spec
        if spec.mode == "merge" and spec.keys is None:
            raise InvalidArgumentError(
                f"{target.name} is not there yet and has no identifier fields: give keys="
            )
        with watched.open() as source:
            if source.schema is None:
                raise SchemaMismatchError(
                    f"{target.name} can't be created: the sources have no columns",
                    differences=("there is no column",),
                )
            new = target.new_table(spec, source.schema)
            transaction = new.transaction(target.catalog)
            mode = "discard" if new.discarded else spec.schema_mode
            report = self._verb(transaction, source, schema_mode=mode, creating=True)
            new.create(transaction, target.catalog, report.snapshot_id)
        return report

    def _verb(
        self,
        into: Table | Transaction,
        source: object,
        *,
        schema_mode: Any = None,
        creating: bool = False,
    ) -> WriteReport:
        spec = self._spec
        options: dict[str, Any] = {
            "memory": self._budget,
            "schema_mode": schema_mode or spec.schema_mode,
            "branch": spec.branch,
            "properties": spec.properties,
            "load_id": spec.load_id,
        }
        if spec.mode == "merge":
            return merge(into, source, **options, **spec.merge_options)
        if spec.mode == "replace" and not creating:
            return overwrite(into, source, **options)
        return append(into, source, **options)


class _Watched:
    """Opens rows, and knows when the last one was given out."""

    def __init__(self, rows: LocalRows) -> None:
        self._rows = rows
        self._ended: float | None = None

    def open(self) -> ArrowSource:
        opened = self._rows.open()

        def batches() -> Any:
            for batch in opened:
                yield batch
                del batch
            self._ended = time.monotonic()

        return ArrowSource(opened.schema, batches(), opened.close)

    def since_end(self) -> float | None:
        return None if self._ended is None else time.monotonic() - self._ended
