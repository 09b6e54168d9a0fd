"""The sources of a load as one Arrow stream, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from icestream.memory import MemoryBudget
from icestream.pipeline.bad_record import BadRecord, OnBad, refuse
from icestream.pipeline.file_columns import one_schema, plain_schema
from icestream.pipeline.load_input import LoadInput, LoadInputs
from icestream.pipeline.load_progress import LoadProgress
from icestream.pipeline.load_spec import LoadSpec
from icestream.pipeline.local_transform import transformed
from icestream.pipeline.postgres_source import open_postgres
from icestream.pipeline.table_increment import scan_point, schema_scan
from icestream.write.source import ArrowSource, open_source
from icestream.write.source_files import fit_batch


@dataclass(slots=True)
class LocalRows:
    """Opens the sources of a load: each call of `open` reads them anew.

    Attributes:
        spec: The load.
        inputs: Its sources.
        budget: What scans of tables draw from, too.
        progress: Kept up to date.
        rows: Rows read in the newest reading, before the transform.
        bad: Bad records seen in it.
        ended: Whether all rows have been given out.
    """

    spec: LoadSpec
    inputs: LoadInputs
    budget: MemoryBudget
    progress: LoadProgress
    duckdb_bytes: int = 0
    rows: int = 0
    bad: int = 0
    ended: bool = False
    _sources: list[ArrowSource] = field(default_factory=list)

    def open(self) -> ArrowSource:
        """One stream of all rows, transformed."""
        self.rows, self.bad, self.ended = 0, 0, False
        stack = ExitStack()
        try:
            opened = [stack.enter_context(self._opened(each)) for each in self.inputs.inputs]
            known = [each.schema for each in opened if each.schema is not None]
            schema = one_schema(known, "the sources' columns") if known else None
            source = ArrowSource(schema, self._union(opened, schema), stack.close)
            if self.spec.transform is not None:
                return transformed(source, self.spec.transform, memory_bytes=self.duckdb_bytes)
            return source
        except BaseException:
            stack.close()
            raise

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
        self.ended = True
        self.progress.stage = "finishing"

    def _opened(self, each: LoadInput) -> ArrowSource:
        kind = each.spec.kind
        if kind == "files":
            assert each.files is not None
            if not each.files.files:
                return ArrowSource(None, iter(()), _nothing)
            batches = self._files(each)
            return ArrowSource(each.columns, batches, batches.close)
        if kind == "table":
            return self._table(each)
        if kind == "jdbc":
            return open_postgres(each.spec)
        return open_source(each.spec.value)

    def _files(self, each: LoadInput) -> Any:
        assert each.files is not None
        quarantines = self.spec.bad_records == "quarantine"
        on_bad: OnBad = self._count_bad if quarantines else refuse
        rows = each.rows
        for file in each.files.files:
            self.progress.files += 1
            yield from rows.read([file], on_bad, self.budget)
            self.progress.bytes += file.bytes

    def _count_bad(self, bad: BadRecord) -> None:
        self.bad += 1

    def _table(self, each: LoadInput) -> ArrowSource:
        assert each.point is not None
        scanned = scan_point(each.spec, each.point, memory=self.budget)
        if scanned is None:
            schema = plain_schema(schema_scan(each.spec, each.point).schema)
            return ArrowSource(schema, iter(()), _nothing)
        schema = plain_schema(scanned.schema)
        batches = iter(scanned)
        return ArrowSource(schema, (fit_batch(b, schema) for b in batches), scanned.close)


def _nothing() -> None:
    pass
