"""Spark jobs that run once: later commits of the same verb get the same files and answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

from icestream.commit.in_flight import InFlightWrite
from icestream.operations.merge.merge_work import MergeWork
from icestream.spark.verbs import merge_frame
from icestream.spark.verbs.merge_frame import _SparkMerge
from icestream.spark.writing import table_write, written_frame
from icestream.write.target import WriteTarget
from tests.support.stored import stored_files

_run = written_frame._run
_run_jobs = _SparkMerge._run_jobs


@dataclass(slots=True)
class RecordedJob:
    """What the job of a verb wrote and answered the first time.

    The tables that the verb is run on must share a folder and be alike.
    """

    _answer: Any = None
    _write_id: str | None = None
    _files: dict[str, bytes] = field(default_factory=dict)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Have the verbs of Spark run their job the first time only."""

        def run(rows: Any, planned: Any) -> Any:
            return self._give(planned.target, lambda: _run(rows, planned))

        def run_jobs(merge: Any, work: MergeWork, in_flight: InFlightWrite) -> Any:
            def merged() -> Any:
                parts = _run_jobs(merge, work, in_flight)
                return merge._source, *parts

            merge._source, files, row_filter, part = self._give(work.target, merged)
            return files, row_filter, part

        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(written_frame, "_run", run))
            stack.enter_context(mock.patch.object(_SparkMerge, "_run_jobs", run_jobs))
            for module in (table_write, merge_frame):
                named = self._named(module.write_target)
                stack.enter_context(mock.patch.object(module, "write_target", named))
            yield

    def _named(self, target_of: Callable[..., WriteTarget]) -> Callable[..., WriteTarget]:
        """Gives each write the id of the first: the names of the files hold it."""

        def named(table: Any) -> WriteTarget:
            target = target_of(table)
            return target if self._write_id is None else replace(target, write_id=self._write_id)

        return named

    def _give(self, target: WriteTarget, run: Callable[[], Any]) -> Any:
        if self._write_id is not None:
            for path, content in self._files.items():
                Path(path).write_bytes(content)
            return self._answer
        self._answer = run()
        self._write_id = target.write_id
        folder = Path(target.metadata.location.removeprefix("file://"))
        written = (path for path in stored_files(folder) if target.write_id in path)
        self._files = {path: Path(path).read_bytes() for path in written}
        return self._answer
