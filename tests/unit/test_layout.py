"""Each module has a file of tests of its name, in the same folder below `tests/unit`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import icestream
from tests.support.process import REPOSITORY

_SOURCE = Path(icestream.__file__).parent
_TESTS = REPOSITORY / "tests" / "unit"
# Modules and packages that are tested elsewhere, and why.
_ELSEWHERE = {
    "__main__.py": "starts cli/main.py",
    "integrations": "tests/integrations, with PyTorch, dlt and Ray",
    "pipeline/audit/spark_checks.py": "tests/spark/test_run.py, with a session",
    "pipeline/engines/engine.py": "a protocol; its engines have tests",
    "pipeline/engines/jar/jar_engine.py": "tests/interop/test_jar_engine.py, with Iceberg's jar",
    "pipeline/engines/spark_engine.py": "tests/spark/test_pipeline_loads.py, with a session",
    "pipeline/engines/spark_files.py": "tests/spark/test_pipeline_loads.py, with a session",
    "report/version.py": "one constant",
    "spark": "tests/spark and tests/conformance, with a session; tests/unit/spark has the rest",
}


def _test_of(module: Path) -> Path:
    return module.parent / f"test_{module.name}"


def _is_elsewhere(module: Path) -> bool:
    return any(str(path) in _ELSEWHERE for path in (module, *module.parents))


def _modules() -> list[Path]:
    files = (path.relative_to(_SOURCE) for path in _SOURCE.rglob("*.py"))
    return sorted(path for path in files if path.name != "__init__.py")


def test_every_module_has_a_file_of_tests_of_its_name() -> None:
    missing = [
        str(_test_of(module))
        for module in _modules()
        if not _is_elsewhere(module) and not (_TESTS / _test_of(module)).is_file()
    ]
    assert missing == []


@pytest.mark.parametrize("place", _ELSEWHERE)
def test_no_exception_is_out_of_date(place: str) -> None:
    assert (_SOURCE / place).exists()
    assert not (_TESTS / _test_of(Path(place))).exists()


def test_the_docstring_of_each_package_lists_its_modules_and_packages() -> None:
    missing = []
    for package in sorted(_SOURCE.rglob("__init__.py")):
        text = ast.get_docstring(ast.parse(package.read_text())) or ""
        if package.parent in (_SOURCE, _SOURCE / "cli" / "commands"):
            continue  # ARCHITECTURE.md lists the former; a command's name is its module's
        for each in sorted(package.parent.iterdir()):
            is_package = (each / "__init__.py").is_file()
            if (is_package and f"{each.name}/" not in text) or (
                each.suffix == ".py" and each.name != "__init__.py" and each.name not in text
            ):
                missing.append(str(each.relative_to(_SOURCE)))
    assert missing == []


def test_folders_of_tests_are_those_of_the_modules() -> None:
    folders = {path.parent.relative_to(_TESTS) for path in _TESTS.rglob("test_*.py")}
    assert {str(folder) for folder in folders if not (_SOURCE / folder).is_dir()} == {"support"}


def test_folders_and_modules_stay_small() -> None:
    folders = [_SOURCE, *(init.parent for init in _SOURCE.rglob("*/__init__.py"))]
    entries = {
        str(folder.relative_to(_SOURCE)): sum(
            each.name != "__pycache__" for each in folder.iterdir()
        )
        for folder in folders
    }
    lines = {str(path): len((_SOURCE / path).read_text().splitlines()) for path in _modules()}
    assert {name: count for name, count in entries.items() if count > 15} == {}
    assert {name: count for name, count in lines.items() if count > 450} == {}
    assert max(len(path.parent.parts) for path in _modules()) <= 3
