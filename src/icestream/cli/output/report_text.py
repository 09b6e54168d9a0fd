"""Reports of changes, loads and load plans as text. Figures that are zero are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icestream.cli.output.text import pairs, seconds, size, worker_text
from icestream.report.counted import counted
from icestream.report.write_report import MergeReport, WriteReport

if TYPE_CHECKING:
    from icestream.pipeline.load_plan import LoadPlan
    from icestream.pipeline.reports.load_report import LoadReport


_Figures = list[tuple[str, object]]


def write_text(table: str, report: WriteReport, *, dry_run: bool = False) -> list[str]:
    """Format the report of a merge or a delete."""
    if report.already_committed:
        head = f"{table}: {_already(None, 'was')}"
        return [head, f"  by snapshot {report.snapshot_id}"]
    if dry_run:
        changes = report.rows_inserted or report.rows_updated or report.rows_deleted
        would = "would change" if changes or report.schema_changes else "no row would change"
        head = f"{table}: {would} (dry run: nothing was changed)"
    elif report.snapshot_id is None:
        head = f"{table}: nothing to change, so there is no new snapshot"
    else:
        head = f"{table}: snapshot {report.snapshot_id}"
    figures = _row_figures(report)
    if dry_run:
        figures += _planned_figures(report)
    else:
        added = report.delete_files_added or None
        figures += _file_figures(report, [("delete files added", added)])
    if isinstance(report, MergeReport):
        figures += [
            ("files searched", f"{report.files_read:,} ({size(report.bytes_read)})"),
            ("rows superseded", report.rows_superseded or None),
            ("duplicate keys in the table", report.target_duplicates or None),
        ]
    if report.memory_limit_bytes:
        held = f"{size(report.peak_bytes_held)} of {size(report.memory_limit_bytes)}"
        figures.append(("held at most", held))
    figures.append(("took", seconds(report.seconds)))
    return _indented(head, figures)


def load_text(report: LoadReport) -> list[str]:
    """Format the report of a load."""
    if report.already_committed:
        head = f"{report.into}: {_already(report.load_id, 'was')}"
    elif report.snapshot_id is None:
        head = f"{report.into}: nothing to change, so there is no new snapshot"
    else:
        created = "created, " if report.created else ""
        head = f"{report.into}: {created}snapshot {report.snapshot_id}"
    if report.already_committed and not report.rows_quarantined:
        return [head, f"  by snapshot {report.snapshot_id}"]
    bad = f"{report.rows_quarantined:,} in {report.quarantine}"
    figures: _Figures = [
        ("engine", _engine(report)),
        ("rows read", report.rows_read or None),
        *_row_figures(report),
        ("bad records", bad if report.rows_quarantined else None),
        ("read", f"{counted(report.files_read, 'file')}, {size(report.bytes_read)}"),
        *_file_figures(report),
    ]
    if report.peak_bytes_held and report.memory_limit_bytes:
        per = " per task" if report.engine == "spark" else ""
        limit = f"{size(report.peak_bytes_held)} of {size(report.memory_limit_bytes)}{per}"
        figures.append(("held at most", limit))
    if report.peak_worker_bytes is not None:
        worker = worker_text(
            report.peak_worker_bytes, report.worker_base_bytes, report.memory_limit_bytes
        )
        figures.append(("workers", worker))
    if report.worker_bytes_at_most is not None:
        overhead = f"{size(report.worker_bytes_at_most)} of memoryOverhead per core"
        figures.append(("on a cluster", overhead))
    stages = ", ".join(f"{name} {seconds(each)}" for name, each in report.stages.items())
    figures.append(("took", f"{seconds(report.seconds)} ({stages})"))
    figures.append(("report", report.report_file))
    return _indented(head, figures)


def plan_text(plan: LoadPlan) -> list[str]:
    """Format the plan of a load."""
    if plan.already_committed:
        return [f"{plan.into}: {_already(plan.load_id, 'would be')}"]
    verb = f"{plan.mode} into {plan.into}"
    head = f"would create {plan.into} and {plan.mode}" if plan.creates_table else f"would {verb}"
    columns = plan.new_columns or plan.columns or {}
    removed = counted(plan.files_removed_at_most, "file")
    rewritten = f"{removed}, {size(plan.bytes_removed_at_most)} at most"
    memory = size(plan.memory_limit_bytes)
    if plan.memory_bytes is not None and plan.tasks and plan.tasks > 1:
        memory += f" x {plan.tasks} tasks = {size(plan.memory_bytes)}"
    figures: _Figures = [
        ("engine", _engine(plan)),
        ("reads", f"{counted(plan.files, 'file')}, {size(plan.bytes)}"),
        ("rows", plan.rows),
        ("columns", ", ".join(f"{name} {kind}" for name, kind in columns.items()) or None),
        ("partitioned by", ", ".join(plan.partition_by) or None),
        ("sorted by", ", ".join(plan.sort_by) or None),
        ("schema", "; ".join(plan.schema_changes) or None),
        ("columns left out", ", ".join(plan.columns_discarded) or None),
        ("snapshot", plan.operation or "none: nothing is new"),
        ("writes about", counted(plan.files_predicted, "file") if plan.files_predicted else None),
        ("rewrites", rewritten if plan.files_removed_at_most else None),
        ("memory", memory),
        ("on Spark", plan.route),
        ("takes about", _time(plan)),
    ]
    notes = [f"  note: {note}" for note in plan.notes]
    return [*_indented(f"{head} (dry run: nothing was changed)", figures), *notes]


def _row_figures(report: WriteReport | LoadReport) -> _Figures:
    return [
        ("rows inserted", report.rows_inserted or None),
        ("rows updated", report.rows_updated or None),
        ("rows deleted", report.rows_deleted or None),
        ("rows unchanged", report.rows_unchanged or None),
    ]


def _planned_figures(report: WriteReport) -> _Figures:
    files = f"{report.files_removed:,}, {size(report.bytes_removed)}"
    return [
        ("files to rewrite or remove", files if report.files_removed else None),
        ("schema", "; ".join(report.schema_changes) or None),
        ("columns left out", ", ".join(report.columns_discarded) or None),
    ]


def _file_figures(report: WriteReport | LoadReport, more: _Figures | None = None) -> _Figures:
    return [
        ("files", f"{report.files_added:,} added, {report.files_removed:,} removed"),
        *(more or ()),
        ("written", size(report.bytes_written)),
        ("spilled", size(report.bytes_spilled) if report.bytes_spilled else None),
        ("schema", "; ".join(report.schema_changes) or None),
        ("columns left out", ", ".join(report.columns_discarded) or None),
    ]


def _indented(head: str, figures: _Figures) -> list[str]:
    return [head, *(f"  {line}" for line in pairs(figures))]


def _engine(facts: LoadReport | LoadPlan) -> str | None:
    if facts.engine_reason is None:
        return None
    return f"{facts.engine}, because {facts.engine_reason}"


def _already(load_id: str | None, was: str) -> str:
    from icestream.commit.outcome.load_id import is_inputs_load_id

    if is_inputs_load_id(load_id):
        return f"already loaded; nothing {was} done (--again appends the same inputs once more)"
    return f"already loaded: a load with this id was committed before; nothing {was} done"


def _time(plan: LoadPlan) -> str | None:
    if plan.seconds_predicted is None:
        return None
    return f"{seconds(plan.seconds_predicted)}, estimated from {plan.prediction}"
