"""The local engine: writes one Arrow stream with `append`, `overwrite` or `merge`."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from pyiceberg.table import Table, Transaction

from icestream.commit.new_table import TableCreatedError
from icestream.commit.outcome.retry import run_again
from icestream.memory.budget import MemoryBudget
from icestream.operations.append import append
from icestream.operations.merge.merge import merge
from icestream.operations.overwrite import overwrite
from icestream.pipeline.engines.engine import Loaded
from icestream.pipeline.engines.local_rows import LocalRows
from icestream.pipeline.inputs.database_source import database_bytes
from icestream.pipeline.inputs.load_input import LoadInputs
from icestream.pipeline.inputs.load_target import LoadTarget
from icestream.pipeline.inputs.quarantine import QuarantineRows, bad_rows
from icestream.pipeline.reports.load_progress import LoadProgress
from icestream.pipeline.request.load_spec import LoadSpec
from icestream.report.write_report import WriteReport
from icestream.write.rules.duckdb_query import refuse_small_memory
from icestream.write.schema.schema_plan import SchemaMode
from icestream.write.sources.arrow_source import ArrowSource
from icestream.write.sources.bad_record import QUARANTINE_SCHEMA


class LocalEngine:
    """Runs loads in this process.

    Args:
        spec: The load.
        progress: Updated while the load runs.

    Raises:
        MemoryBudgetError: If the transform is SQL, and the limit is too small for DuckDB.

    Memory: the load and DuckDB together stay within the load's `memory`.
    """

    def __init__(self, spec: LoadSpec, progress: LoadProgress) -> None:
        self._spec = spec
        self._progress = progress
        whole = spec.memory_bytes
        # With SQL, half of the limit is for DuckDB.
        self._duckdb_bytes = whole // 2 if isinstance(spec.transform, str) else 0
        if self._duckdb_bytes:
            otherwise = "give a function as transform"
            refuse_small_memory(whole, "a SQL transform on the local engine", otherwise)
        self.memory_bytes = whole
        databases = sum(database_bytes(source, whole) for source in spec.sources)
        self._budget = MemoryBudget(max(1, whole - self._duckdb_bytes - databases))

    def write(self, inputs: LoadInputs, target: LoadTarget) -> Loaded:
        """Write the rows of all sources as one snapshot."""
        self._progress.begin(inputs.files or None, budget=self._budget)
        rows = LocalRows(self._spec, inputs, self._budget, self._progress, self._duckdb_bytes)

        def write() -> Loaded:
            nonlocal target
            watched = _Watched(rows)
            try:
                if target.table is None:
                    report = self._create(watched, target)
                else:
                    source = watched.open if inputs.can_reopen else watched.open()
                    report = self._verb(target.table, source)
            except TableCreatedError:
                target = target.refreshed()
                raise
            table_files, table_bytes = rows.scanned
            return Loaded(
                replace(report, memory_limit_bytes=self.memory_bytes),
                created=target.table is None,
                rows_read=0 if report.already_committed else rows.rows,
                may_be_bad=rows.bad > 0 or report.already_committed,
                seconds_finishing=watched.since_end(),
                table_files_read=table_files,
                table_bytes_read=table_bytes,
            )

        return run_again(write, on=(TableCreatedError,), if_possible=inputs.can_reopen)

    def quarantine(
        self, inputs: LoadInputs, target: LoadTarget, load_id: str | None
    ) -> WriteReport | None:
        """Store the bad records of all sources. Return None if there are none."""
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
        return new.create_with(target.catalog, lambda into: append(into, source, **options))

    def _create(self, watched: _Watched, target: LoadTarget) -> WriteReport:
        target.check_new(self._spec)
        with watched.open() as source:
            new = target.new_table(self._spec, source.schema)
            mode: SchemaMode = "discard" if new.discarded else self._spec.schema_mode
            return new.create_with(
                target.catalog,
                lambda into: self._verb(into, source, schema_mode=mode, creating=True),
            )

    def _verb(
        self,
        into: Table | Transaction,
        source: object,
        *,
        schema_mode: SchemaMode | None = None,
        creating: bool = False,
    ) -> WriteReport:
        options = {**self._spec.write_options, "memory": self._budget}
        options["schema_mode"] = schema_mode or self._spec.schema_mode
        if self._spec.mode == "merge":
            return merge(into, source, **options)
        if self._spec.mode == "replace" and not creating:
            return overwrite(into, source, **options)
        return append(into, source, **options)


class _Watched:
    """Opens the rows, and records when the last one was read."""

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
