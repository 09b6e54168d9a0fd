"""The rows of source files, read as a load reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from icestream.pipeline.request.source_spec import SourceSpec
from icestream.write.sources.bad_record import BadRecord, refuse
from icestream.write.sources.file_columns import KnownTypes, columns_of
from icestream.write.sources.file_rows import FileRows
from icestream.write.sources.source_file import cut_files, find_files
from icestream.write.sources.text.text_format import CsvFormat


def rows_of(
    source: Any,
    *,
    known: KnownTypes | None = None,
    on_bad: Callable[[BadRecord], None] = refuse,
    part_bytes: int | None = None,
) -> list[dict[str, Any]]:
    """The rows of the files of a source, cut into parts if `part_bytes` is given."""
    found = find_files(SourceSpec.parse(source), {})
    schema = columns_of(found, known or KnownTypes())
    files = list(found.files)
    if part_bytes is not None:
        files = cut_files(files, target_bytes=part_bytes, cuts_csv=True)
        assert len(files) > len(found.files)
    reader = FileRows(schema, found.store, CsvFormat.of(found.options))
    return [row for batch in reader.read(files, on_bad) for row in batch.to_pylist()]
