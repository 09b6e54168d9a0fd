"""The archive with icestream's code that executors import."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from icestream.spark.setup.shipping import _zipped

_IMPORT = """
import sys
sys.path.insert(0, sys.argv[1])
import icestream.spark.tasks.planned_frame as module
print(module.__file__, module.__cached__)
"""


def _imported(archive: Path) -> list[str]:
    command = [sys.executable, "-c", _IMPORT, str(archive)]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    return run.stdout.split()


def test_an_executor_imports_the_bytecode_of_the_code_that_is_sent() -> None:
    archive = _zipped()
    module = f"{archive}/icestream/spark/tasks/planned_frame.pyc"
    assert _imported(archive) == [module, module]


def test_an_executor_with_another_python_imports_the_source(tmp_path: Path) -> None:
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(_zipped()) as archive, zipfile.ZipFile(other, "w") as changed:
        for name in archive.namelist():
            content = archive.read(name)
            changed.writestr(name, b"0000" + content[4:] if name.endswith(".pyc") else content)
    assert _imported(other)[0] == f"{other}/icestream/spark/tasks/planned_frame.py"
