"""Awkward shapes in fresh processes: the process grows by no more than its limit and 64 MB."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.process import FreshProcessError, ProcessReport, run_in_fresh_process
from tests.torture.attack import Settings, Verdict
from tests.torture.child import answer
from tests.torture.shapes import MB, SHAPES, Shape

_BESIDE_BYTES = 64 * MB
_TIMEOUT_SECONDS = 600
# Whoever sorts imports has PyArrow, and pandas, before icestream or after it.
_IMPORTS = {
    "icestream first": "import icestream\n",
    "pyarrow first": "import pandas\nimport pyarrow\nimport pyarrow.parquet\nimport icestream\n",
}
_MAIN = "from tests.torture.measured_shape import main\n"


def attack(settings: Settings) -> Verdict:
    """Each shape with both orders of imports; smaller shapes, or few, at a scale below 1."""
    verdict = Verdict()
    for name, shape in list(SHAPES.items())[: max(1, round(len(SHAPES) * settings.scale))]:
        folder = settings.folder / f"memory-{name.replace(' ', '-')}"
        sizes = shape.sizes if settings.scale >= 1 else shape.small
        make = shape.make
        rows = answer(lambda f=folder, make=make, n=sizes: make(f, *n), timeout_seconds=600)
        for verb, order in _cases(shape):
            verdict.faults += 1
            problem, report = _measured(folder, shape, verb, _IMPORTS[order], rows)
            if problem is not None:
                verdict.problems.append(f"{verb} of {name}, {order}: {problem}")
            if report is not None:
                key = f"MB for {name}"
                growth = report.peak_rss_growth_bytes // MB
                verdict.counts[key] = max(growth, verdict.counts.get(key, 0))
        shutil.rmtree(folder)
    return verdict


def _cases(shape: Shape) -> list[tuple[str, str]]:
    """Each verb; scans, which change nothing, with both orders of imports."""
    return [
        (verb, order)
        for verb in shape.verbs
        for order in _IMPORTS
        if verb == "scan" or order == "icestream first"
    ]


def _measured(
    folder: Path, shape: Shape, verb: str, imports: str, rows: int
) -> tuple[str | None, ProcessReport | None]:
    """What is wrong, if anything is; and what was measured."""
    options = dict(shape.options)
    try:
        report = run_in_fresh_process(
            imports + _MAIN,
            str(folder),
            verb,
            shape.limit_bytes,
            options,
            timeout_seconds=_TIMEOUT_SECONDS,
        )
    except FreshProcessError as error:
        return f"untyped: {error}", None
    allowed = shape.limit_bytes + _BESIDE_BYTES
    if report.peak_rss_growth_bytes > allowed:
        grown = report.peak_rss_growth_bytes // MB
        return f"the process grew by {grown} MB, {allowed // MB} allowed", report
    if "error" in report.result:
        if report.result["error"] != shape.refusal:
            return f"{report.result['error']}: {report.result['text']}", report
    elif report.result["rows"] != rows:
        return f"{report.result['rows']} rows instead of {rows}", report
    return None, report
