"""Bring the jars of java-jars.xml from Maven Central to .interop, and check them.

Run by .venv-interop's Python. Ivy, which PySpark ships, knows where Maven Central is and compares
every file with the checksum beside it; java-jars.sha256 says what the files were when the tests
were written. MAVEN_REPOSITORY names another repository with the same layout.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pyspark

from icestream.spark.setup.java import java_environment

_HERE = Path(__file__).resolve().parent
_JARS = _HERE.parents[1] / ".interop"
_FETCH_SECONDS = 900


def main() -> None:
    """Fetch what is missing or not as expected; end with a message where that can't be done."""
    expected = _expected()
    if wrong := _wrong(expected):
        for name in wrong:
            (_JARS / name).unlink(missing_ok=True)  # Ivy keeps existing files.
        _fetch()
    if wrong := _wrong(expected):
        sys.exit(
            f"{_JARS} lacks these jars, or they are not what java-jars.sha256 says: {wrong}. "
            "Remove that folder and try again; if that does not help, the repository has other "
            "files than these tests were written with."
        )


def java_executable() -> str:
    """The Java that suits this environment's Spark."""
    home = os.environ.get("JAVA_HOME")
    home = java_environment(pyspark.__version__).get("JAVA_HOME", home)
    return str(Path(home, "bin", "java")) if home else "java"


def spark_jars(pattern: str) -> list[str]:
    """Jars that PySpark ships."""
    return [str(path) for path in sorted(Path(pyspark.__file__).parent.glob(f"jars/{pattern}"))]


def fetched_jars(group: str) -> list[str]:
    """Jars that were fetched: `spark`, `server` or `sources`."""
    return [str(path) for path in sorted((_JARS / group).glob("*.jar"))]


def fetched_jar(group: str, pattern: str) -> str:
    """One of them.

    Raises:
        FileNotFoundError: If it was not fetched.
    """
    found = next((_JARS / group).glob(pattern), None)
    if found is None:
        raise FileNotFoundError(f"{_JARS / group / pattern} is missing: run `make java`")
    return str(found)


def _expected() -> dict[str, str]:
    lines = (_HERE / "java-jars.sha256").read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def _wrong(expected: dict[str, str]) -> list[str]:
    return [name for name, digest in expected.items() if _digest(_JARS / name) != digest]


def _digest(path: Path) -> str | None:
    if not path.exists():
        return None
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _fetch() -> None:
    _JARS.mkdir(exist_ok=True)
    command = [
        java_executable(),
        *("-cp", os.pathsep.join(spark_jars("ivy-*.jar")), "org.apache.ivy.Main"),
        *("-cache", str(_JARS / "cache")),
        *("-ivy", str(_HERE / "java-jars.xml")),
        *("-retrieve", str(_JARS / "[conf]/[artifact]-[revision](-[classifier]).[ext]")),
        *("-types", "jar", "bundle"),
        *_settings(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS)
    if done.returncode != 0:
        told = "\n".join((done.stdout + done.stderr).splitlines()[-25:])
        advice = (
            "Java does not trust this machine's certificates: install the machine's own Java, or "
            "name a key store in JAVA_TOOL_OPTIONS (-Djavax.net.ssl.trustStore=...)."
            if "PKIX path" in told
            else "These tests need Maven Central: run them where it is reachable, or set "
            "MAVEN_REPOSITORY to the address of a mirror."
        )
        sys.exit(f"{told}\n\nThe jars could not be fetched. {advice}")


def _settings() -> list[str]:
    """Where to fetch from, if not from where Ivy does by itself."""
    repository = os.environ.get("MAVEN_REPOSITORY")
    if not repository:
        return []
    path = _JARS / "ivysettings.xml"
    path.write_text(
        '<ivysettings><settings defaultResolver="given"/><resolvers>'
        f'<ibiblio name="given" m2compatible="true" root={quoteattr(repository)}/>'
        "</resolvers></ivysettings>"
    )
    return ["-settings", str(path)]


if __name__ == "__main__":
    main()
