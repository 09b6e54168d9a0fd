"""`load`: sources become one snapshot of a table, by Spark or in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

import icestream as ice
from icestream.errors import UnsupportedFeatureError
from icestream.memory import DEFAULT_MEMORY
from icestream.pipeline.load_report import LoadReport
from icestream.pipeline.load_spec import BadRecords, Engine, LoadMode, LoadSpec, Transform
from icestream.pipeline.load_target import LoadTarget
from icestream.upsert.options import (
    Isolation,
    NullKeys,
    OnDuplicate,
    WhenMatched,
    WhenNotMatched,
    WriteMode,
)
from icestream.write.schema import SchemaMode
from icestream.write.source_files import SourceFiles


def load(
    sources: object,
    into: str | Table,
    *,
    mode: LoadMode = "append",
    keys: Sequence[str] | str | None = None,
    schema_mode: SchemaMode = "freeze",
    transform: Transform | None = None,
    schema: pa.Schema | Mapping[str, Any] | None = None,
    partition_by: Sequence[str] | str = (),
    sort_by: Sequence[str] | str = (),
    table_properties: Mapping[str, str] | None = None,
    create: bool = True,
    catalog: str | Catalog | None = None,
    memory: int | str | None = None,
    engine: Engine = "spark",
    master: str | None = None,
    remote: str | None = None,
    branch: str | None = None,
    load_id: str | None = None,
    properties: Mapping[str, str] | None = None,
    bad_records: BadRecords = "fail",
    quarantine: str | None = None,
    incremental: bool = False,
    checkpoint: str | Path | None = None,
    when_matched: WhenMatched = "update",
    when_not_matched: WhenNotMatched = "insert",
    update_columns: Sequence[str] | None = None,
    delete_when: str | None = None,
    on_duplicate: OnDuplicate = "error",
    last_by: str | None = None,
    null_keys: NullKeys = "error",
    skip_unchanged: bool = True,
    write_mode: WriteMode | None = None,
    isolation: Isolation | None = None,
    name: str | None = None,
    state: str | os.PathLike[str] | None = None,
) -> LoadReport:
    """Load sources into a table, as exactly one snapshot."""
    given = {key: value for key, value in locals().items() if key not in ("sources", "into")}
    state = given.pop("state")
    return run_load(LoadSpec.of(sources, into, **given), state=state)


def run_load(
    spec: LoadSpec,
    *,
    state: str | os.PathLike[str] | None = None,
    spark: Any = None,
    progress: Any = None,
    on_report: Callable[[LoadReport], None] | None = None,
) -> LoadReport:
    """Run one load, as it is described.

    Args:
        spec: The load; `dataclasses.replace` sets another branch or load_id.
        state: The state folder; `./icestream_state` or what `ICESTREAM_STATE` says by default. An
            empty text: nothing is stored.
        spark: The session to use; by default the one that runs, or a new one.
        progress: A `LoadProgress` that is kept up to date.
        on_report: Called with the report before this returns.
    """
    if spec.engine != "local" or spec.mode != "append" or spec.sources[0].kind != "files":
        raise UnsupportedFeatureError("not built yet")
    with LoadTarget.open(spec) as target:
        if target.table is None:
            raise UnsupportedFeatureError("not built yet")
        paths = [path for source in spec.sources for path in source.paths]
        source = SourceFiles(paths, types=target.table.schema().as_arrow())
        written = ice.append(
            target.table,
            source,
            memory=spec.memory or DEFAULT_MEMORY,
            schema_mode=spec.schema_mode,
            branch=spec.branch,
            properties=spec.properties,
            load_id=spec.load_id,
        )
    return LoadReport(
        load=spec.name,
        into=spec.table_name,
        mode=spec.mode,
        engine=spec.engine,
        load_id=spec.load_id,
        branch=spec.branch or "main",
        snapshot_id=written.snapshot_id,
        already_committed=written.already_committed,
        rows_read=source.rows_read,
        rows_inserted=written.rows_inserted,
        files_added=written.files_added,
    )
