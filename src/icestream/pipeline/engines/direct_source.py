"""The sources of a load, cut into parts that Spark's tasks read themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from icestream.errors import SchemaMismatchError
from icestream.pipeline.inputs.load_input import LoadInput, LoadInputs
from icestream.pipeline.inputs.table_increment import scan_point, schema_scan
from icestream.pipeline.request.load_spec import LoadSpec
from icestream.read.plan.found_files import ManifestWorkers
from icestream.read.scan import planned_by
from icestream.read.split import Split
from icestream.spark.tasks.direct_write import SourcePart, SourceReader
from icestream.spark.tasks.packing import MOST_BYTES_PER_TASK, pack, wanted_tasks
from icestream.write.sources.batch_columns import one_schema
from icestream.write.sources.file_columns import plain_schema
from icestream.write.sources.file_rows import FileRows
from icestream.write.sources.source_file import SourceFile, cut_files

LEAST_BYTES_PER_TASK = 8 << 20  # a smaller task would write small files for little time
_OPENING_BYTES = 1 << 20
# Parquet bytes per byte of a source, roughly. Other formats are as small as Parquet.
_STORED_SHARE = {"csv": 0.4, "json": 0.25, "arrow": 0.6}


class NotDirectError(Exception):
    """Rows of the sources must pass through Spark. The message says why."""


@dataclass(frozen=True, slots=True)
class DirectSource:
    """All sources of a load, for tasks that read them themselves.

    Attributes:
        reader: Reads parts in a task.
        parts: Everything there is to read.
        cores: Number of tasks that run at once.
    """

    reader: SourceReader
    parts: Sequence[SourcePart] = field(repr=False)
    cores: int

    @classmethod
    def of(
        cls,
        spec: LoadSpec,
        inputs: LoadInputs,
        *,
        cores: int,
        memory_bytes: int,
        case_sensitive: bool,
        workers: ManifestWorkers | None = None,
    ) -> DirectSource:
        """Cut the sources of a load.

        Args:
            spec: The load.
            inputs: Its sources, with known columns of files.
            cores: Number of tasks that run at once.
            memory_bytes: Memory limit of each task, and of planning.
            case_sensitive: Whether columns may differ only by case.
            workers: Read the manifests of tables; by default this process does.

        Raises:
            NotDirectError: If rows must pass through Spark.
        """
        columns = direct_columns(spec, inputs, case_sensitive)
        needed = spec.needed_columns(columns)
        if needed is not None:
            columns = pa.schema([each for each in columns if each.name in needed])
        query = spec.task_query(spec.rules.schema(columns), memory_bytes)
        own_bytes = memory_bytes - (0 if query is None else query.memory_bytes)
        tasks = wanted_tasks(cores)
        fair_bytes = inputs.bytes // tasks
        files: dict[int, FileRows] = {}
        parts: list[SourcePart] = []
        for number, each in enumerate(inputs.inputs):
            pieces: Sequence[SourceFile | Split] = ()
            if each.files is None:
                pieces = _splits(each, memory_bytes, tasks, needed, workers)
            elif each.files.files:
                rows = replace(each, memory_bytes=own_bytes).rows
                files[number] = replace(rows, needed=needed)
                pieces = _cut(each, files[number], fair_bytes)
            parts += (SourcePart(number, piece) for piece in pieces)
        passes_bad = spec.bad_records == "quarantine"
        reader = SourceReader(columns, files, passes_bad, rules=spec.rules, query=query)
        return cls(reader, parts, cores)

    @property
    def schemas(self) -> tuple[pa.Schema, pa.Schema]:
        """The columns before and after the rules."""
        return self.reader.columns, self.reader.output

    @property
    def bytes(self) -> int:
        """The size of all parts in storage."""
        return sum(part.bytes for part in self.parts)

    @property
    def stored_bytes(self) -> int:
        """The approximate size of the rows in Parquet."""
        return int(sum(part.bytes * _stored_share(part) for part in self.parts))

    def shares(
        self, tasks: int | None = None, most_bytes: int = MOST_BYTES_PER_TASK
    ) -> list[list[SourcePart]]:
        """Pack the parts into tasks.

        Args:
            tasks: Number of tasks. By default as many as keep all cores busy until the end, or
                fewer for small sources.
            most_bytes: Maximum size of a task in storage, unless one part is larger.
        """
        if tasks is None:
            cost = self.bytes + _OPENING_BYTES * len(self.parts)
            tasks = max(1, min(wanted_tasks(self.cores), cost // LEAST_BYTES_PER_TASK))
        return pack(self.parts, tasks=tasks, most_bytes=most_bytes)


def direct_columns(spec: LoadSpec, inputs: LoadInputs, case_sensitive: bool) -> pa.Schema:
    """The columns of all sources, if tasks can read them themselves.

    Raises:
        NotDirectError: If rows must pass through Spark.
    """
    if spec.transform is not None and spec.transform_engine == "spark":
        raise NotDirectError("Spark runs the transform")
    schemas = []
    for each in inputs.inputs:
        if each.point is not None:
            schemas.append(plain_schema(schema_scan(each.spec, each.point).schema))
        elif each.files is None:
            raise NotDirectError(f"Spark reads {each.spec.text}")
        elif each.columns is not None:
            schemas.append(each.columns)
    if not schemas:
        raise NotDirectError("there are no files")
    kinds: dict[str, tuple[str, pa.DataType]] = {}
    for field_ in (each for schema in schemas for each in schema):
        key = field_.name if case_sensitive else field_.name.lower()
        if kinds.setdefault(key, (field_.name, field_.type)) != (field_.name, field_.type):
            raise NotDirectError(
                f"the types or names of column {field_.name!r} differ, and Spark unites them"
            )
    try:
        return one_schema(schemas, "the sources' columns")
    except SchemaMismatchError as error:
        raise NotDirectError("Spark unites the columns of the sources") from error


def _cut(each: LoadInput, rows: FileRows, fair_bytes: int) -> list[SourceFile]:
    assert each.files is not None
    target = min(max(LEAST_BYTES_PER_TASK, fair_bytes), MOST_BYTES_PER_TASK)
    return cut_files(each.files.files, target_bytes=target, cuts_csv=rows.csv.can_be_cut)


def _splits(
    each: LoadInput,
    memory_bytes: int,
    tasks: int,
    needed: frozenset[str] | None,
    workers: ManifestWorkers | None,
) -> list[Split]:
    """The splits of a table, small enough to keep all tasks busy."""
    assert each.point is not None
    scanned = scan_point(each.spec, each.point, memory=memory_bytes, needed=needed)
    if scanned is None:
        return []
    if workers is not None:
        scanned = planned_by(scanned, workers)
    splits = scanned.splits()
    target = max(LEAST_BYTES_PER_TASK, sum(split.bytes for split in splits) // tasks)
    if any(split.bytes > target for split in splits):
        splits = scanned.splits(target)
    return splits


def _stored_share(part: SourcePart) -> float:
    piece = part.piece
    if not isinstance(piece, SourceFile) or piece.is_compressed:
        return 1.0
    return _STORED_SHARE.get(piece.format, 1.0)
