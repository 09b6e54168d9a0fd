"""Private names of PyIceberg: one package alone uses them, and its tests name each of them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import icestream

_SOURCE = Path(icestream.__file__).parent
_PACKAGE = _SOURCE / "catalogs" / "_pyiceberg"
_PRIVATE_USERS = sorted(_PACKAGE.glob("[a-z]*.py"))
_OTHERS = [path for path in sorted(_SOURCE.rglob("*.py")) if path.parent != _PACKAGE]


def _package(module: Path) -> str:
    return module.relative_to(_SOURCE).parts[0]


@cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def _private_uses(source: str) -> list[str]:
    """Private names imported from PyIceberg, and private attributes of what came from it."""
    tree = _parsed(source)
    found: list[str] = []
    ours: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pyiceberg":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.extend(name for name in names if _is_private(name))
            ours.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names if a.name.split(".")[0] == "pyiceberg"]
            found.extend(name for name in names if _is_private(name))
            ours.update("pyiceberg" for _ in names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            root: ast.expr = node.value
            while isinstance(root, (ast.Attribute, ast.Call, ast.Subscript)):
                root = root.func if isinstance(root, ast.Call) else root.value
            if isinstance(root, ast.Name) and root.id in ours:
                found.append(ast.unparse(node))
    return found


_OF_PYSPARK = ("_jdf", "_jsc", "_jvm")  # the only ways from PySpark to the JVM
_PUBLIC = ("os._exit",)  # documented by Python, in spite of the underscore


def _private_attributes_of_others(source: str) -> list[str]:
    """Private attributes of anything but `self`, `cls` and the module's own classes."""
    tree = _parsed(source)
    defined = {
        target.attr
        for node in ast.walk(tree)
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute)
    }
    defined |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and _is_private(node.attr)
        and node.attr not in defined
        and node.attr not in _OF_PYSPARK
        and ast.unparse(node) not in _PUBLIC
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]


def _private_names(source: str) -> list[str]:
    return [*_private_uses(source), *_private_attributes_of_others(source)]


def test_the_search_finds_private_names_however_they_are_reached() -> None:
    assert _private_uses("from pyiceberg.io.pyarrow import _x, y") == ["pyiceberg.io.pyarrow._x"]
    assert _private_uses("from pyiceberg._hidden import y") == ["pyiceberg._hidden.y"]
    assert _private_uses("import pyiceberg._hidden") == ["pyiceberg._hidden"]
    assert _private_uses("import pyiceberg.io\npyiceberg.io._x") == ["pyiceberg.io._x"]
    assert _private_uses("from pyiceberg.table import T\nT(1)._y") == ["T(1)._y"]
    assert _private_uses("from pyiceberg.table import T as U\nU.a[0]._y") == ["U.a[0]._y"]
    assert _private_uses("from pyiceberg.table import T\nT.__name__; self._y") == []
    assert _private_attributes_of_others("def f(table):\n    return table._metadata") == [
        "table._metadata"
    ]
    assert _private_attributes_of_others("self._a = 1\nother._a") == []
    assert _private_attributes_of_others("os._exit(1); os._other(1)") == ["os._other"]


@pytest.mark.parametrize("package", sorted({_package(path) for path in _OTHERS}))
def test_no_other_module_touches_private_names_of_pyiceberg(package: str) -> None:
    modules = [path for path in _OTHERS if _package(path) == package]
    touched = {
        str(module.relative_to(_SOURCE)): names
        for module in modules
        if (names := _private_names(module.read_text()))
    }
    assert touched == {}


def test_every_private_name_that_is_used_is_tested_in_this_folder() -> None:
    used = [name for module in _PRIVATE_USERS for name in _private_names(module.read_text())]
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert len(used) > 5
    for name in used:
        assert f"`{name.rsplit('.', 1)[-1]}`" in tests
