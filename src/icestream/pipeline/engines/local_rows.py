"""Opens the sources of a load as one Arrow stream, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from icestream.errors import ScanClosedError
from icestream.memory.budget import MemoryBudget
from icestream.pipeline.engines.local_transform import transformed
from icestream.pipeline.inputs.database_source import open_database
from icestream.pipeline.inputs.load_input import LoadInput, LoadInputs
from icestream.pipeline.inputs.table_increment import scan_point, schema_scan
from icestream.pipeline.reports.load_progress import LoadProgress
from icestream.pipeline.request.load_spec import LoadSpec
from icestream.read.scan import Scan
from icestream.write.sources.arrow_source import ArrowSource, open_source
from icestream.write.sources.bad_record import BadRecord, OnBad, refuse
from icestream.write.sources.batch_columns import fit_batch, one_schema
from icestream.write.sources.file_columns import plain_schema


@dataclass(slots=True)
class LocalRows:
    """Opens the sources of a load. Each call of `open` reads them from the start.

    Attributes:
        spec: The load.
        inputs: The sources.
        budget: The memory budget, also for scans of tables.
        progress: Updated while the rows are read.
        duckdb_bytes: Memory limit of DuckDB, for a SQL transform.
        rows: Number of rows read since the last `open`, before the transform.
        bad: Number of bad records since the last `open`.
        scans: The scans of tables since the last `open`.
    """

    spec: LoadSpec
    inputs: LoadInputs
    budget: MemoryBudget
    progress: LoadProgress
    duckdb_bytes: int = 0
    rows: int = 0
    bad: int = 0
    scans: list[Scan] = field(default_factory=list)

    @property
    def scanned(self) -> tuple[int, int]:
        """The number and the size in storage of the data files of tables read so far."""
        reports = []
        for each in self.scans:
            with suppress(ScanClosedError):  # nothing was read from it
                reports.append(each.report)
        files = sum(report.files for report in reports)
        return files, sum(report.compressed_bytes for report in reports)

    def open(self) -> ArrowSource:
        """Open one stream of the rows to write, after the rules and the transform."""
        self.rows = self.bad = 0
        self.scans.clear()
        stack = ExitStack()
        try:
            streams = {
                number: stack.enter_context(self._stream(each))
                for number, each in enumerate(self.inputs.inputs)
                if each.files is None and each.point is None
            }
            known = [
                streams[number].schema if number in streams else _columns(each)
                for number, each in enumerate(self.inputs.inputs)
            ]
            schemas = [each for each in known if each is not None]
            schema = one_schema(schemas, "the sources' columns") if schemas else None
            needed = None if schema is None else self.spec.needed_columns(schema)
            opened = [
                streams[number]
                if number in streams
                else stack.enter_context(self._opened(each, columns, needed))
                for number, (each, columns) in enumerate(
                    zip(self.inputs.inputs, known, strict=True)
                )
            ]
            schema = None if schema is None else _only(schema, needed)
            source = ArrowSource(schema, self._union(opened, schema), stack.close)
            source = self.spec.rules.apply(source)
            if self.spec.transform is not None:
                return transformed(source, self.spec.transform, memory_bytes=self.duckdb_bytes)
            return source
        except BaseException:
            stack.close()
            raise

    def _stream(self, each: LoadInput) -> ArrowSource:
        if each.spec.kind == "jdbc":
            return open_database(each.spec, self.spec.memory_bytes)
        return open_source(each.spec.value)

    def _union(
        self, opened: list[ArrowSource], schema: pa.Schema | None
    ) -> Iterator[pa.RecordBatch]:
        assert schema is not None or not any(each.schema for each in opened)
        for source in opened:
            for batch in source:
                self.rows += batch.num_rows
                self.progress.rows = self.rows
                yield fit_batch(batch, schema)
                del batch
        self.progress.stage = "finishing"

    def _opened(
        self, each: LoadInput, columns: pa.Schema | None, needed: frozenset[str] | None
    ) -> ArrowSource:
        """Open files or a table with the columns that are needed."""
        if columns is None:
            return ArrowSource(None, iter(()), _nothing)
        schema = _only(columns, needed)
        if each.files is not None:
            batches = self._files(each, schema, needed)
            return ArrowSource(schema, batches, batches.close)
        assert each.point is not None
        scanned = scan_point(each.spec, each.point, memory=self.budget, needed=needed)
        if scanned is None:
            return ArrowSource(schema, iter(()), _nothing)
        self.scans.append(scanned)
        return ArrowSource(schema, (fit_batch(b, schema) for b in scanned), scanned.close)

    def _files(self, each: LoadInput, schema: pa.Schema, needed: frozenset[str] | None) -> Any:
        assert each.files is not None
        quarantines = self.spec.bad_records == "quarantine"
        on_bad: OnBad = self._count_bad if quarantines else refuse
        rows = replace(each.rows, needed=needed)
        for file in each.files.files:
            self.progress.files += 1
            for batch in rows.read([file], on_bad, self.budget):
                yield fit_batch(batch, schema)
                del batch
            self.progress.bytes += file.bytes

    def _count_bad(self, bad: BadRecord) -> None:
        self.bad += 1


def _columns(each: LoadInput) -> pa.Schema | None:
    """The columns of files or of a table; None if there are no files."""
    if each.point is None:
        return each.columns
    return plain_schema(schema_scan(each.spec, each.point).schema)


def _only(columns: pa.Schema, needed: frozenset[str] | None) -> pa.Schema:
    """The columns that are needed, at least one, which has the number of rows."""
    if needed is None:
        return columns
    return pa.schema([each for each in columns if each.name in needed] or [columns.field(0)])


def _nothing() -> None:
    pass
