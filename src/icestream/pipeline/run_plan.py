"""The dry run of a pipeline: what each load would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from icestream.commit.outcome.load_id import is_inputs_load_id
from icestream.errors import IcestreamError, MissingExtraError
from icestream.pipeline.inputs.load_identity import Naming
from icestream.pipeline.load_plan import LoadPlan, check_packages, plan_load
from icestream.pipeline.reports.run_report import PlannedLoad, RunPlan, in_words
from icestream.pipeline.reports.state_folder import LoadState, StateFolder
from icestream.pipeline.request.engine_choice import choose_engine
from icestream.pipeline.request.load_spec import LoadSpec
from icestream.pipeline.request.pipeline_file import PipelineFile
from icestream.pipeline.run_state import RunState


def _status(plan: LoadPlan | None, known: LoadState) -> Literal["run", "already loaded", "skip"]:
    if plan is None or not plan.already_committed:
        return "run"
    by_inputs = is_inputs_load_id(known.load_id) and known.status != "done"
    return "already loaded" if by_inputs else "skip"


def plan_run(
    file: PipelineFile,
    order: Sequence[str],
    needs: Mapping[str, tuple[str, ...]],
    open_run: RunState | None,
    folder: StateFolder,
    spark: Any,
    *,
    again: bool = False,
) -> RunPlan:
    """Plan a run without changing anything.

    Args:
        file: The pipeline.
        order: Names of the loads to run, in order.
        needs: The loads that each load waits for.
        open_run: The crashed run that would be resumed, if any.
        folder: The state folder, which may contain reports of earlier loads.
        spark: The session for loads on Spark.
        again: Whether inputs that were loaded before would be appended again.

    Raises:
        MissingExtraError: If a load needs a package that is not installed.
    """
    loads = {load.name: load for load in file.loads}
    state = open_run or RunState(file.name, "none", list(order), again=again)
    planned = []
    for name in order:
        spec = loads[name].spec
        try:
            plan, reason = _plan(spec, folder, spark, partial(state.name_load, spec))
        except MissingExtraError as error:
            error.add_note(f"The load {name!r} needs it")
            raise
        planned.append(
            PlannedLoad(
                load=name,
                status=_status(plan, state.load(name)),
                into=spec.table_name,
                mode=spec.mode,
                engine=choose_engine(spec, spark)[0].engine,
                after=needs[name],
                tests=tuple(test.name for test in loads[name].tests),
                plan=plan,
                reason=reason,
            )
        )
    return RunPlan(file.name, open_run.run_id if open_run else None, tuple(planned))


def _plan(
    spec: LoadSpec, folder: StateFolder, spark: Any, naming: Naming
) -> tuple[LoadPlan | None, str | None]:
    """The plan of a load, or why it can't be planned yet."""
    try:
        return plan_load(spec, state=folder, spark=spark, naming=naming), None
    except MissingExtraError:
        raise
    except IcestreamError as error:
        check_packages(choose_engine(spec, spark)[0], spark)
        return None, in_words(error)
