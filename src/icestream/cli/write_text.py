"""What a change did to a table, as text."""

from __future__ import annotations

from icestream.cli.output import pairs, seconds, size
from icestream.report import MergeReport, WriteReport


def write_text(table: str, report: WriteReport) -> list[str]:
    """The figures that are not zero."""
    if report.already_committed:
        head = f"{table}: a load with this id was committed before; nothing was done"
    elif report.snapshot_id is None:
        head = f"{table}: nothing to change, so there is no new snapshot"
    else:
        head = f"{table}: snapshot {report.snapshot_id}"
    figures: list[tuple[str, object]] = [
        ("rows inserted", report.rows_inserted or None),
        ("rows updated", report.rows_updated or None),
        ("rows deleted", report.rows_deleted or None),
        ("rows unchanged", report.rows_unchanged or None),
        ("files", f"{report.files_added:,} added, {report.files_removed:,} removed"),
        ("delete files added", report.delete_files_added or None),
        ("written", size(report.bytes_written)),
        ("spilled", size(report.bytes_spilled) if report.bytes_spilled else None),
        ("schema", "; ".join(report.schema_changes) or None),
        ("columns left out", ", ".join(report.columns_discarded) or None),
    ]
    if isinstance(report, MergeReport):
        figures += [
            ("files looked into", f"{report.files_read:,} ({size(report.bytes_read)})"),
            ("rows superseded", report.rows_superseded or None),
            ("doubled keys in the table", report.target_duplicates or None),
        ]
    if report.memory_limit_bytes:
        held = f"{size(report.peak_bytes_held)} of {size(report.memory_limit_bytes)}"
        figures.append(("held at most", held))
    figures.append(("took", seconds(report.seconds)))
    return [head, *(f"  {line}" for line in pairs(figures))]
