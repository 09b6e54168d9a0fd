"""A load whose result is tested before it is published: write, audit, publish."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from icestream.errors import (
    ChecksFailedError,
    CommitConflictError,
    CommitUnknownError,
    SchemaMismatchError,
)
from icestream.memory.budget import DEFAULT_MEMORY
from icestream.pipeline.audit.local_checks import run_local_checks
from icestream.pipeline.audit.new_audited_table import (
    create_new_table,
    drop_new_table,
    plan_new_table,
)
from icestream.pipeline.audit.publish import AuditBranch, OutrunError
from icestream.pipeline.inputs.load_target import LoadTarget
from icestream.pipeline.reports.load_report import LoadReport
from icestream.pipeline.reports.state_folder import LoadState
from icestream.pipeline.request.checks import Check, CheckResult
from icestream.pipeline.request.load_spec import LoadSpec
from icestream.report.counted import counted

_TRIES = 5

Loading = Callable[[LoadSpec, LoadTarget], LoadReport]


@dataclass(slots=True)
class AuditGate:
    """A `pipeline.load_execution.Gate` that publishes a load only if its tests pass.

    Attributes:
        tests: The tests on the result.
        branch: Name of the audit branch.
        fingerprint: Digest of the load's text in the file.
        known: The state of the load.
        keep: Writes the state to disk.
        spark: The session for tests, if the engine is Spark; by default the active session.
        results: Results of the tests.
        attempts: Number of times the load ran.
        is_left: Whether the audit branch was left for inspection.
        loaded: The report of the load.
    """

    tests: tuple[Check, ...]
    branch: str
    fingerprint: str
    known: LoadState
    keep: Callable[[], None]
    spark: Any = None
    results: tuple[CheckResult, ...] = ()
    attempts: int = 0
    is_left: bool = False
    loaded: LoadReport | None = None

    def __call__(self, spec: LoadSpec, target: LoadTarget, load: Loading) -> LoadReport:
        """Load, test and publish. Repeat if another writer commits during the tests.

        If an interrupted load is still on the audit branch, it is tested and published.

        Raises:
            ChecksFailedError: If a test failed. The audit branch stays for inspection.
            CommitConflictError: If another writer committed each time. Nothing was published.
        """
        with self._table(spec, target) as table:
            target = replace(target, table=table)
            audit = AuditBranch(table, self.branch, spec.branch or MAIN_BRANCH)
            self._tidy(audit)
            if audit.published(spec.load_id) is not None:
                audit.drop()
                return load(spec, target)  # does nothing, and returns the report
            return self._audited(audit, spec, target, load)

    def _audited(
        self, audit: AuditBranch, spec: LoadSpec, target: LoadTarget, load: Loading
    ) -> LoadReport:
        outrun: OutrunError | None = None
        for _ in range(_TRIES):
            self.attempts += 1
            audit.prepare(spec.load_id)
            report = self._loaded(spec, audit, target, load)
            try:
                head = audit.head()
                self.results = self._check(spec, audit.table)
                self._refuse_failures(spec, audit)
                audit.publish(head, spec.load_id)
            except OutrunError as error:
                outrun = error
                continue
            return report
        raise CommitConflictError(
            f"another writer committed to {spec.table_name} during each of {_TRIES} attempts to "
            f"test load {spec.name!r}. Nothing was published; run it again when the table is quiet"
        ) from outrun

    def _loaded(
        self, spec: LoadSpec, audit: AuditBranch, target: LoadTarget, load: Loading
    ) -> LoadReport:
        """Run the load on the audit branch, without the columns that its new table lacks.

        Raises:
            SchemaMismatchError: If the table lacks more columns than when it was created.
        """
        known, uuid = self.known, str(audit.table.metadata.table_uuid)
        created = known.created_uuid == uuid
        leaves_out = created and spec.schema_mode == "freeze" and bool(known.left_out)
        mode = "discard" if leaves_out else spec.schema_mode
        report = load(replace(spec, branch=audit.name, schema_mode=mode), target)
        self.loaded = report = replace(
            report, branch=audit.onto, already_committed=False, created=created
        )
        if leaves_out and (new := sorted(set(report.columns_discarded) - set(known.left_out))):
            audit.drop()  # so that the next run does not publish this load
            names = ", ".join(map(repr, new))
            raise SchemaMismatchError(
                f"the sources have new columns since {spec.table_name} was created for them: "
                f"{names}. Nothing was published; run it again",
                differences=tuple(f"column {name!r} is not in the table" for name in new),
            )
        return report

    def _tidy(self, audit: AuditBranch) -> None:
        """Drop audit branches with rows of outdated loads."""
        known = self.known
        for old in known.old_branches:
            replace(audit, name=old).drop()
        if known.status == "tests failed" or known.fingerprint != self.fingerprint:
            audit.drop()
        known.status, known.fingerprint, known.old_branches = "begun", self.fingerprint, []
        self.keep()

    def _check(self, spec: LoadSpec, table: Table) -> tuple[CheckResult, ...]:
        if spec.engine != "local":
            from icestream.pipeline.audit.spark_checks import run_spark_checks
            from icestream.pipeline.engines.spark_engine import session_of

            session = self.spark or session_of(spec)
            results = run_spark_checks(
                self.tests, table, branch=self.branch, spark=session, memory=spec.memory
            )
        else:
            memory = spec.memory or DEFAULT_MEMORY
            results = run_local_checks(self.tests, table, branch=self.branch, memory=memory)
        return tuple(results)

    def _refuse_failures(self, spec: LoadSpec, audit: AuditBranch) -> None:
        failed = [result for result in self.results if not result.passed]
        if not failed:
            return
        self.known.status = "tests failed"
        self.keep()
        self.is_left = not drop_new_table(audit.table, self.known.created_uuid, audit.name)
        into = spec.table_name
        look = f"see the result on branch {audit.name!r} of {into}"
        texts = "; ".join(f"{result.name}: {result.text}" for result in failed)
        raise ChecksFailedError(
            f"{len(failed)} of {counted(len(self.results), 'test')} on the result failed: {texts}. "
            f"Nothing was published; {look if self.is_left else f'{into} was not created'}",
            failed=(spec.name,),
        )

    @contextmanager
    def _table(self, spec: LoadSpec, target: LoadTarget) -> Iterator[Table]:
        """The table. A missing one is created without rows, and dropped if the load fails."""
        table = target.table
        if table is None:
            planned = plan_new_table(target, spec, self.spark)
            self.known.created_uuid = str(planned.metadata.table_uuid)
            self.known.left_out = list(planned.discarded)
            self.keep()  # so that a run that resumes this one knows its table
            table = create_new_table(planned, target.catalog)
        try:
            yield table
        except (ChecksFailedError, CommitUnknownError):
            raise  # a commit that may still succeed needs the table
        except BaseException:
            drop_new_table(table, self.known.created_uuid, self.branch)
            raise
