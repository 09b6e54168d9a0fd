"""The jobs of a write: how Spark's UI names them, and what is left when one of them fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from icestream.operations.upkeep.orphans import delete_write
from icestream.spark.setup.installed import is_classic
from icestream.spark.tasks.shown_work import described_jobs
from icestream.spark.tasks.task_notes import driver_error
from icestream.write.target import WriteTarget

# Where Spark does not say which tasks still run, these waits must do. Spark kills the worker of a
# cancelled task after two seconds (`spark.python.task.killTimeout`).
_CLEAN_UP_WAITS = (0.0, 1.0, 2.0)
_LONGEST_WAIT_SECONDS = 30.0
_LOOK_SECONDS = 0.05
_log = logging.getLogger(__name__)


@contextmanager
def write_jobs(spark: Any, target: WriteTarget, what: str) -> Iterator[None]:
    """Run the jobs of a write. If one fails, delete the files of all its tasks.

    Spark reports a failed job while other tasks of the job still run and write. After Ctrl-C, or
    any other error in this process, a job goes on. So jobs that still run are cancelled, and the
    files are deleted after their tasks have ended.

    Args:
        spark: The session.
        target: The write.
        what: What the jobs do, such as `append to db.t`, for Spark's UI and for messages.

    Raises:
        TaskFailedError: If a job failed for a reason that is not one of icestream's errors.
    """
    tag = f"icestream-{target.write_id}"
    try:
        with _tagged(spark, tag), described_jobs(spark, what):
            yield
    except BaseException as error:
        if _tasks_ended(spark, tag):
            delete_write(target)
        else:
            abandon(target)
        shown = driver_error(error, what=what)
        if shown is error:
            raise
        raise shown from error


def abandon(target: WriteTarget) -> None:
    """Delete all files that the tasks of a write have written. Never raises.

    This is for code that can't ask Spark whether tasks still run.
    """
    for seconds in _CLEAN_UP_WAITS:
        time.sleep(seconds)
        delete_write(target)


@contextmanager
def _tagged(spark: Any, tag: str) -> Iterator[None]:
    """Tag the jobs of a block, so that they and their tasks can be found later."""
    if is_classic(spark):
        add, remove = spark.sparkContext.addJobTag, spark.sparkContext.removeJobTag
    else:
        add, remove = spark.addTag, spark.removeTag
    add(tag)
    try:
        yield
    finally:
        remove(tag)


def _tasks_ended(spark: Any, tag: str) -> bool:
    """Cancel the tagged jobs, and wait until no task of them runs.

    Returns:
        False if that can't be known, as Spark does not count the tasks of jobs that were cancelled.
    """
    deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
    try:
        if not is_classic(spark):
            spark.interruptTag(tag)
            return False
        tracker = spark.sparkContext._jsc.sc().statusTracker()
        are_cancelled = any(_is_running(job) for job in _jobs(tracker, tag))
        spark.sparkContext.cancelJobsWithTag(tag)
        while _running_tasks(tracker, tag):
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
    except Exception as error:  # the session may have been stopped
        _log.debug("Spark does not say whether tasks of %s still run: %s", tag, error)
        return False
    return not are_cancelled


def _jobs(tracker: Any, tag: str) -> Iterator[Any]:
    jobs = (tracker.getJobInfo(job_id) for job_id in tracker.getJobIdsForTag(tag))
    return (job.get() for job in jobs if job.isDefined())


def _is_running(job: Any) -> bool:
    return str(job.status()) == "RUNNING"


def _running_tasks(tracker: Any, tag: str) -> int:
    """The number of running jobs and tasks."""
    running = 0
    for job in _jobs(tracker, tag):
        running += _is_running(job)
        stages = [tracker.getStageInfo(stage_id) for stage_id in job.stageIds()]
        running += sum(stage.get().numActiveTasks() for stage in stages if stage.isDefined())
    return running
