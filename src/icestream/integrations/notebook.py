"""Progress in a notebook: rows, files and a bar of the memory held, updated while the work runs.

```python
with NotebookProgress() as progress:
    ice.load("data/*.csv", into="shop.orders", progress=progress)
    ice.compact("shop.orders", progress=progress)
    for batch in progress.over(ice.scan("shop.orders")): ...
```
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from importlib import import_module
from types import TracebackType
from typing import Any

import pyarrow as pa

from icestream.errors import MissingExtraError
from icestream.pipeline.reports.load_progress import LoadProgress
from icestream.read.scan import Scan
from icestream.report.display import Figure, as_html, memory_figure, size
from icestream.report.upkeep_report import CompactReport

_EVERY_SECONDS = 0.3


class NotebookProgress(LoadProgress):
    """Shows the progress of loads, compactions and scans below the cell that runs them.

    Use it as a context manager. A thread updates the display about three times a second.

    Raises:
        MissingExtraError: If IPython is not installed.
    """

    def __init__(self) -> None:
        super().__init__()
        try:
            self._ipython: Any = import_module("IPython.display")
        except ImportError as error:
            raise MissingExtraError(
                "NotebookProgress needs IPython: pip install ipython"
            ) from error
        self._figures = self._load_figures
        self._title = ""
        self._display: Any = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="icestream-notebook", daemon=True)

    def __enter__(self) -> NotebookProgress:
        self._display = self._ipython.display(self._html(), display_id=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._update()

    def __call__(self, report: CompactReport) -> None:
        """Show the progress of a compaction: `ice.compact(table, progress=progress)`."""
        self._title = f"compacting {report.table}"
        self._figures = lambda: _compact_figures(report)

    def over(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        """Iterate over a scan, and show its progress."""
        self._title = "scanning"
        batches = iter(scan)
        for batch in batches:
            self._figures = lambda: _scan_figures(scan)
            yield batch
            del batch

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            self._update()

    def _update(self) -> None:
        if self._display is not None:
            self._display.update(self._html())

    def _html(self) -> Any:
        return self._ipython.HTML(as_html(self._title or self.stage, self._figures()))

    def _load_figures(self) -> list[Figure]:
        figures = [
            Figure("rows", f"{self.rows:,}"),
            _counted("files", self.files, self.files_total),
            Figure("read", size(self.bytes)),
        ]
        if self.tasks_total:
            figures.append(_counted("tasks", self.tasks or 0, self.tasks_total))
        if self.limit_bytes:
            figures.append(memory_figure(self.bytes_held, self.limit_bytes))
        return figures


def _compact_figures(report: CompactReport) -> list[Figure]:
    ended = len(report.snapshot_ids) + report.groups_refused
    return [
        _counted("groups", ended, report.groups),
        Figure("rows", f"{report.rows_rewritten:,}"),
        memory_figure(report.peak_bytes_held, report.memory_limit_bytes),
    ]


def _scan_figures(scan: Scan) -> list[Figure]:
    report = scan.report
    return [
        Figure("rows", f"{report.rows:,}"),
        Figure("files", f"{report.files:,} of {report.files_planned:,} planned so far"),
        memory_figure(report.peak_bytes_held, report.memory_limit_bytes),
    ]


def _counted(label: str, count: int, total: int | None) -> Figure:
    """A line with a bar, if the total is known."""
    if not total:
        return Figure(label, f"{count:,}")
    return Figure(label, f"{count:,} of {total:,}", (count, total))
