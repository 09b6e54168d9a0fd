"""The public names and their signatures are those of `public_api.txt`.

After a change that is meant, write the file again and commit it with the change:

    python -m tests.unit.test_public_api
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

SNAPSHOT = Path(__file__).with_name("public_api.txt")
MODULES: dict[str, tuple[str, ...] | None] = {
    "icestream": None,  # None: the names in `__all__`
    "icestream.spark": None,
    "icestream.catalogs": (
        "list_tables",
        "load_table",
        "make_local_catalog",
        "open_catalog",
    ),
    "icestream.spark.errors": ("typed",),
    "icestream.integrations.dlt_destination": ("icestream_destination",),
    "icestream.integrations.dlt_filesystem": ("filesystem",),
    "icestream.integrations.notebook": ("NotebookProgress",),
    "icestream.integrations.ray": None,
    "icestream.integrations.torch_loader": ("SplitLoader",),
}
# Classes that functions return, and that nobody constructs.
RETURNED = ("Scan",)


def test_the_public_api_is_the_one_that_was_agreed_on() -> None:
    expected = SNAPSHOT.read_text().splitlines()
    difference = difflib.unified_diff(expected, _public_api(), "public_api.txt", "the code")
    text = "\n".join(line.rstrip("\n") for line in difference)
    if text:
        pytest.fail(
            f"The public API changed:\n{text}\n\nIf users are meant to notice, run\n"
            "    python -m tests.unit.test_public_api\n"
            "commit tests/unit/public_api.txt, and add a line to CHANGELOG.md. A name that goes "
            "away is deprecated first: see docs/versioning.md.",
            pytrace=False,
        )


def test_a_changed_signature_is_a_difference() -> None:
    def load(table: str, *, limit: int = 3) -> None: ...

    def changed(table: str, *, limit: int = 4) -> None: ...

    assert list(_described("load", load)) == [
        "load(",
        "    table: str,",
        "    *,",
        "    limit: int = 3,",
        ") -> None",
    ]
    assert list(_described("load", load)) != list(_described("load", changed))


def test_the_members_of_a_class_are_part_of_the_snapshot() -> None:
    class Report:
        def __init__(self, rows: int) -> None: ...

        @property
        def bytes(self) -> int:
            return 0

        def show(self) -> str:
            return ""

        def _hidden(self) -> None: ...

    assert list(_described("Report", Report)) == [
        "class Report(",
        "    rows: int,",
        ") -> None",
        "Report.bytes -> int",
        "Report.show() -> str",
    ]


def _public_api() -> list[str]:
    lines: list[str] = []
    for module_name, names in MODULES.items():
        module = import_module(module_name)
        for name in sorted(names or module.__all__):
            lines += _described(f"{module_name}.{name}", getattr(module, name))
    return lines


def _described(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield from _class(name, value)
    elif callable(value):
        yield from _function(name, inspect.signature(value))
    else:
        yield name


def _class(name: str, value: type[Any]) -> Iterator[str]:
    bases = [base.__name__ for base in value.__bases__ if base is not object]
    if issubclass(value, BaseException):
        yield f"class {name}({', '.join(bases)})"
        if "__init__" in vars(value):
            yield from _function(f"{name}.__init__", inspect.signature(vars(value)["__init__"]))
    elif name.rpartition(".")[2] in RETURNED:
        yield f"class {name}"
    else:
        yield from _function(f"class {name}", inspect.signature(value))
    for member, attribute in sorted(_members(value).items()):
        if member.startswith("_"):
            continue
        full = f"{name}.{member}"
        if isinstance(attribute, property | functools.cached_property):
            getter = attribute.fget if isinstance(attribute, property) else attribute.func
            yield f"{full}{_arrow(inspect.signature(getter))}"  # type: ignore[arg-type]
        elif isinstance(attribute, staticmethod | classmethod) or inspect.isfunction(attribute):
            function = getattr(attribute, "__func__", attribute)
            yield from _function(full, inspect.signature(function))


def _members(value: type[Any]) -> dict[str, Any]:
    """The members of a class. Those of its base belong to it if the base is not public."""
    base = value.__bases__[0]
    inherited = base.__module__.startswith("icestream.read.results")
    return {**(vars(base) if inherited else {}), **vars(value)}


def _function(name: str, signature: inspect.Signature) -> Iterator[str]:
    """One parameter a line, so that a changed one is a changed line."""
    parameters: list[str] = []
    kinds = [each.kind for each in signature.parameters.values()]
    for position, each in enumerate(signature.parameters.values()):
        keyword_only = each.kind is each.KEYWORD_ONLY
        if keyword_only and not {each.KEYWORD_ONLY, each.VAR_POSITIONAL} & set(kinds[:position]):
            parameters.append("*")
        if each.name not in ("self", "cls"):
            parameters.append(_parameter(each))
    end = "" if signature.return_annotation is signature.empty else _arrow(signature)
    if not parameters:
        yield f"{name}(){end}"
        return
    yield f"{name}("
    yield from (f"    {each}," for each in parameters)
    yield f"){end}"


def _parameter(parameter: inspect.Parameter) -> str:
    text = parameter.name
    if parameter.kind is parameter.VAR_POSITIONAL:
        text = f"*{text}"
    elif parameter.kind is parameter.VAR_KEYWORD:
        text = f"**{text}"
    if parameter.annotation is not parameter.empty:
        text += f": {parameter.annotation}"
    if parameter.default is not parameter.empty:
        # A function is shown with its address, which is another one in each process.
        default = "..." if callable(parameter.default) else repr(parameter.default)
        text += f" = {default}"
    return text


def _arrow(signature: inspect.Signature) -> str:
    annotation = signature.return_annotation
    return f" -> {'None' if annotation is None else annotation}"


if __name__ == "__main__":
    SNAPSHOT.write_text("\n".join(_public_api()) + "\n")
