"""A load whose result is tested before anybody sees it: write, audit, publish."""

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
from icestream.memory import DEFAULT_MEMORY
from icestream.pipeline.checks import Check, CheckResult
from icestream.pipeline.load_report import LoadReport
from icestream.pipeline.load_spec import LoadSpec
from icestream.pipeline.load_target import LoadTarget
from icestream.pipeline.local_checks import run_local_checks
from icestream.pipeline.new_audited_table import create_new_table, drop_new_table, plan_new_table
from icestream.pipeline.publish import AuditBranch, OutrunError
from icestream.pipeline.run_state import LoadState

_TRIES = 5

Loading = Callable[[LoadSpec, LoadTarget], LoadReport]


@dataclass(slots=True)
class AuditGate:
    """Stands between a load and its branch, as `icestream.pipeline.load_run.Gate`.

    Attributes:
        tests: What the result must be like.
        branch: The name of the audit branch.
        fingerprint: How the load is written now.
        known: How far the load is.
        keep: Writes to disk how far it is.
        spark: The session that tests run on, where the engine is Spark; the one that runs if None.
        results: What the tests found.
        attempts: How often the load was run.
        is_left: Whether the audit branch was left for a look.
        loaded: What was read and written.
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
        """Load, test, publish; again if others have committed meanwhile.

        A load that waits on the audit branch since it was interrupted is tested and published.

        Raises:
            ChecksFailedError: If a test failed. The audit branch stays for a look.
            CommitConflictError: If others were faster each time. Nothing was published.
        """
        with self._table(spec, target) as table:
            target = replace(target, table=table)
            audit = AuditBranch(table, self.branch, spec.branch or MAIN_BRANCH)
            self._tidy(audit)
            if audit.published(spec.load_id) is not None:
                audit.drop()
                return load(spec, target)  # which does nothing, and says what was done
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
            f"others have committed to {spec.table_name} each of the {_TRIES} times that load "
            f"{spec.name!r} was tested. Nothing was published; run it again when the table is "
            "quieter"
        ) from outrun

    def _loaded(
        self, spec: LoadSpec, audit: AuditBranch, target: LoadTarget, load: Loading
    ) -> LoadReport:
        """The load on its branch; columns that its new table was created without are left out.

        Raises:
            SchemaMismatchError: If there are more of them than when the table was created.
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
            audit.drop()  # so that the next run does not find the load there, and publish it
            names = ", ".join(map(repr, new))
            raise SchemaMismatchError(
                f"the sources have got new columns since {spec.table_name} was created for them: "
                f"{names}. Nothing was published; run it again",
                differences=tuple(f"column {name!r} is not in the table" for name in new),
            )
        return report

    def _tidy(self, audit: AuditBranch) -> None:
        """Drop branches whose rows come from what is not wanted any more."""
        known = self.known
        for old in known.old_branches:
            replace(audit, name=old).drop()
        if known.status == "tests failed" or known.fingerprint != self.fingerprint:
            audit.drop()
        known.status, known.fingerprint, known.old_branches = "begun", self.fingerprint, []
        self.keep()

    def _check(self, spec: LoadSpec, table: Table) -> tuple[CheckResult, ...]:
        if spec.engine == "spark":
            from icestream.pipeline.spark_checks import run_spark_checks
            from icestream.pipeline.spark_engine import session_of

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
        found = "; ".join(f"{result.name}: {result.text}" for result in failed)
        raise ChecksFailedError(
            f"{len(failed)} of {len(self.results)} tests on the result failed: {found}. Nothing "
            f"was published; {look if self.is_left else f'{into} is not there, as before'}",
            failed=(spec.name,),
        )

    @contextmanager
    def _table(self, spec: LoadSpec, target: LoadTarget) -> Iterator[Table]:
        """The table; created without rows if it is not there, and dropped if its load fails."""
        table = target.table
        if table is None:
            planned = plan_new_table(target, spec, self.spark)
            self.known.created_uuid = str(planned.metadata.table_uuid)
            self.known.left_out = list(planned.discarded)
            self.keep()  # so that a run that takes this one up knows whose table it is
            table = create_new_table(planned, target.catalog)
        try:
            yield table
        except (ChecksFailedError, CommitUnknownError):
            raise  # what may still land must find the table
        except BaseException:
            drop_new_table(table, self.known.created_uuid, self.branch)
            raise
