"""What a run would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from icestream.errors import IcestreamError
from icestream.pipeline.load_plan import plan_load
from icestream.pipeline.pipeline_file import PipelineFile
from icestream.pipeline.run_report import PlannedLoad, RunPlan, in_words
from icestream.pipeline.run_state import RunState
from icestream.pipeline.state_folder import StateFolder


def plan_run(
    file: PipelineFile,
    order: Sequence[str],
    needs: Mapping[str, tuple[str, ...]],
    open_run: RunState | None,
    folder: StateFolder,
    spark: Any,
) -> RunPlan:
    """Tell what a run would do. Touches nothing.

    Args:
        file: The pipeline.
        order: The loads that would run, in their order.
        needs: What each load waits for.
        open_run: The run that would be taken up.
        folder: The state folder, which may have reports of earlier loads.
        spark: The session for loads on Spark.
    """
    loads = {load.name: load for load in file.loads}
    done = (
        set()
        if open_run is None
        else {name for name, load in open_run.loads.items() if load.status == "done"}
    )
    planned = []
    for name in order:
        spec = loads[name].spec
        plan, reason = None, None
        if name not in done:
            try:
                plan = plan_load(spec, state=folder, spark=spark)
            except IcestreamError as error:
                reason = in_words(error)
        planned.append(
            PlannedLoad(
                load=name,
                status="skip" if name in done else "run",
                into=spec.table_name,
                mode=spec.mode,
                engine=spec.engine,
                after=needs[name],
                tests=tuple(test.name for test in loads[name].tests),
                plan=plan,
                reason=reason,
            )
        )
    return RunPlan(file.name, open_run.run_id if open_run else None, tuple(planned))
