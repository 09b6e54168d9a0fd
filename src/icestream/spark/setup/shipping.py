"""`ship`: sends icestream from the driver to executors that lack it."""

from __future__ import annotations

import atexit
import hashlib
import marshal
import os
import sys
import zipfile
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icestream.errors import InvalidArgumentError
from icestream.memory.scratch_folder import ScratchFolder
from icestream.spark.setup.installed import is_classic, pyspark_module
from icestream.spark.setup.registration import register_again

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNPACKED = "icestream_environment"
_PYTHON = f"{_UNPACKED}/bin/python"
_PACKAGES = f"{_UNPACKED}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
_CONNECT_PYTHON_SETTING = "spark.sql.execution.pyspark.python"
_ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar")
# A fixed date for every file, so that the same code gives the same archive.
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)


def ship(spark: SparkSession, *, environment: str | Path | None = None) -> None:
    """Send icestream to executors on which it is not installed.

    Call this function before the first job. It is not needed if icestream is installed on all
    machines.

    Without `environment`, this sends only icestream's own code, about 3 MB. PyArrow and
    PyIceberg must be installed on the executors. With `environment`, executors use the packages of
    a complete environment, packed with `venv-pack` or `conda-pack`.

    Executors must run the same minor version of Python as this process. With Spark Connect,
    functions run in the Python of the environment. The server plans and reads sources with its own
    Python, which must have PyArrow and PyIceberg.

    Args:
        spark: A session, classic or Spark Connect.
        environment: A packed environment: a `.tar.gz`, `.tgz`, `.tar` or `.zip` file with `bin` and
            `lib` at the top level.

    Raises:
        InvalidArgumentError: If there is no such archive.
    """
    if environment is None:
        _send_code(spark, _zipped())
        register_again(spark)
        return
    archive = Path(environment)
    if not archive.is_file() or not archive.name.endswith(_ARCHIVES):
        raise InvalidArgumentError(
            f"environment is {str(environment)!r}: give an existing {', '.join(_ARCHIVES)} file, "
            "packed with venv-pack or conda-pack"
        )
    _send_environment(spark, f"{archive}#{_UNPACKED}")
    register_again(spark)


def _send_code(spark: Any, path: Path) -> None:
    if is_classic(spark):
        before = list(sys.path)
        spark.sparkContext.addPyFile(str(path))
        sys.path[:] = before  # this process has icestream already
    else:
        spark.addArtifacts(str(path), pyfile=True)


def _send_environment(spark: Any, archive: str) -> None:
    if not is_classic(spark):
        spark.addArtifacts(archive, archive=True)
        spark.conf.set(_CONNECT_PYTHON_SETTING, _PYTHON)
        _send_code(spark, _zipped())  # the server plans sources with its own Python
        return
    context = spark.sparkContext
    context.addArchive(archive)
    # Executors unpack the archive in their working folder. The driver, where sources are planned,
    # unpacks it in a folder of its own. Spark has one Python path for both, so only the packages
    # can come from the archive.
    here = pyspark_module("pyspark").SparkFiles.getRootDirectory()
    paths = [_PACKAGES, f"{here}/{_PACKAGES}", context.environment.get("PYTHONPATH", "")]
    context.environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)


def _zipped() -> Path:
    """The package as a zip file that Python can import, named after a hash of its contents."""
    package = Path(__file__).resolve().parents[2]
    contents: dict[str, bytes] = {}
    for file in sorted(package.rglob("*.py")):
        name = file.relative_to(package.parent).as_posix()
        contents[name] = file.read_bytes()
        contents[f"{name}c"] = _bytecode(name, contents[name])
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    folder = ScratchFolder("ship")
    atexit.register(folder.close)
    path = folder.path / f"icestream-{digest.hexdigest()[:16]}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name, _ZIP_DATE), content, zipfile.ZIP_DEFLATED)
    return path


def _bytecode(name: str, source: bytes) -> bytes:
    """The bytecode of a module, which Python imports in a third less time than its source.

    A file of bytecode has a header of 16 bytes. A 1 says that a hash of the source follows, which
    need not be checked. Other versions of Python than this one ignore the file and use the source.
    """
    header = MAGIC_NUMBER + (1).to_bytes(4, "little") + source_hash(source)
    return header + marshal.dumps(compile(source, name, "exec", dont_inherit=True))
