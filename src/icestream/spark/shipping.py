"""`ship`: executors that lack icestream get it from the driver."""

from __future__ import annotations

import atexit
import hashlib
import os
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import icestream
from icestream.errors import InvalidArgumentError
from icestream.scratch_folder import ScratchFolder
from icestream.spark.installed import is_classic, pyspark_module
from icestream.spark.registration import register_again

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNPACKED = "icestream_environment"
_PYTHON = f"{_UNPACKED}/bin/python"
_PACKAGES = f"{_UNPACKED}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
_CONNECT_PYTHON_SETTING = "spark.sql.execution.pyspark.python"
_ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar")
# Of every file, so that the same code is the same archive.
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)


def ship(spark: SparkSession, *, environment: str | Path | None = None) -> None:
    """Have executors import icestream, where it is not installed.

    Call it before the first job. Without `environment` the code of icestream alone is sent, a few
    hundred KB: PyArrow and PyIceberg must be installed where executors run. With it, executors find
    the packages of an environment that has everything, as `venv-pack` or `conda-pack` makes it. The
    executors' Python must be of the same line as this one; with Spark Connect functions run in that
    of the environment, and the server, which plans and reads sources with its own Python, must have
    PyArrow and PyIceberg. Not needed where icestream is installed on all machines.

    Args:
        spark: A session, classic or Spark Connect.
        environment: A packed environment: `.tar.gz`, `.tgz`, `.tar` or `.zip`, with `bin` and `lib`
            at its top.

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
            f"environment is {str(environment)!r}: give a file that ends with "
            f"{', '.join(_ARCHIVES)}, as venv-pack or conda-pack makes it"
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
        _send_code(spark, _zipped())  # the server plans sources with a Python of its own
        return
    context = spark.sparkContext
    context.addArchive(archive)
    # Executors unpack it where they run, and the driver, where sources are planned, in a folder of
    # its own. A Python is the same for both, so that only its packages can be another's.
    here = pyspark_module("pyspark").SparkFiles.getRootDirectory()
    paths = [_PACKAGES, f"{here}/{_PACKAGES}", context.environment.get("PYTHONPATH", "")]
    context.environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)


def _zipped() -> Path:
    """The package as a file that Python can import from; named after its contents."""
    package = Path(icestream.__file__).parent
    files = sorted(package.rglob("*.py"))
    contents = {file.relative_to(package.parent).as_posix(): file.read_bytes() for file in files}
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
