"""Dependencies between the loads of a pipeline, and the order in which they run.

A load waits for the loads listed under `after`, for loads that write a table it reads, and for
earlier loads in the file that write to the same table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.table import Table

from icestream.errors import InvalidArgumentError
from icestream.pipeline.request.load_spec import LoadSpec
from icestream.pipeline.request.pipeline_file import PipelineLoad

_Needs = dict[str, tuple[str, ...]]


def needs_of(loads: Sequence[PipelineLoad]) -> Mapping[str, tuple[str, ...]]:
    """The loads that each load waits for.

    Raises:
        InvalidArgumentError: If loads wait for each other.
    """
    needs: _Needs = {}
    for load in loads:
        read = _read_by(load.spec)
        writers = [each.name for each in loads if each is not load and _written(each.spec) in read]
        needs[load.name] = tuple(dict.fromkeys([*load.after, *writers]))
    _refuse_cycles(needs)
    for number, load in enumerate(loads):
        for before in loads[:number]:
            same = _written(before.spec) == _written(load.spec)
            if same and not _waits_for(needs, before.name, load.name):
                needs[load.name] = tuple(dict.fromkeys([*needs[load.name], before.name]))
    return needs


def run_order(needs: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The names of the loads, dependencies first and otherwise in the order of the file."""
    left, ordered = list(needs), []
    while left:
        ready = next(name for name in left if not set(needs[name]) & set(left))
        left.remove(ready)
        ordered.append(ready)
    return ordered


def _written(spec: LoadSpec) -> tuple[object, str]:
    return _place(spec.catalog, spec.into)


def _read_by(spec: LoadSpec) -> set[tuple[object, str]]:
    return {
        _place(source.catalog if source.catalog is not None else spec.catalog, source.table)
        for source in spec.sources
        if source.kind == "table"
    }


def _place(catalog: object, table: str | Table | None) -> tuple[object, str]:
    name = ".".join(table.name()) if isinstance(table, Table) else str(table)
    return catalog if catalog is None or isinstance(catalog, str) else id(catalog), name


def _waits_for(needs: Mapping[str, tuple[str, ...]], name: str, other: str) -> bool:
    seen, left = set[str](), [name]
    while left:
        each = left.pop()
        if each == other:
            return True
        if each not in seen:
            seen.add(each)
            left += needs[each]
    return False


def _refuse_cycles(needs: Mapping[str, tuple[str, ...]]) -> None:
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        if name in way:
            cycle = " -> ".join((*way[way.index(name) :], name))
            raise InvalidArgumentError(
                f"loads wait for each other: {cycle} (each waits for the next, by 'after' or "
                "because it reads the other's table)"
            )
        if name not in done:
            for each in needs[name]:
                visit(each, (*way, name))
            done.add(name)

    for name in needs:
        visit(name, ())
