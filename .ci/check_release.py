"""Check the archives in `dist`: `python .ci/check_release.py`, run by `make release`.

The wheel is installed in an empty environment, from which a small table is loaded and read back.
"""

from __future__ import annotations

import email
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from email.message import Message
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
ROWS = 1000


def main() -> None:
    """Check both archives; the first problem ends the process with a message."""
    wheel, sdist = _only("*.whl"), _only("*.tar.gz")
    metadata = _check_wheel(wheel)
    _check_sdist(sdist)
    with tempfile.TemporaryDirectory() as folder:
        _check_installed(wheel, Path(folder), metadata["Version"])
    print(f"{wheel.name} and {sdist.name} are complete, and the wheel works.")
    for url in metadata.get_all("Project-URL", []):
        label, _, address = url.partition(", ")
        if not address.startswith("https://"):
            print(f"Before an upload: [project.urls] {label} = {address!r} is not an address yet.")


def _only(pattern: str) -> Path:
    paths = sorted((REPOSITORY / "dist").glob(pattern))
    if len(paths) != 1:
        sys.exit(f"dist has {len(paths)} files that match {pattern}: run make release")
    return paths[0]


def _check_wheel(wheel: Path) -> Message:
    """Every file of the package is in it, and its metadata is complete."""
    source = REPOSITORY / "src"
    expected = {
        path.relative_to(source).as_posix()
        for path in (source / "icestream").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = next(name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(info))
    if missing := sorted(expected - names):
        sys.exit(f"{wheel.name} lacks {missing}: list data files under package-data")
    if not any(name.endswith("/licenses/LICENSE") for name in names):
        sys.exit(f"{wheel.name} lacks the licence")
    if metadata["Description-Content-Type"] != "text/markdown" or not metadata.get_payload():
        sys.exit(f"{wheel.name} has no readable description: check readme in pyproject.toml")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = set(metadata.get_all("Provides-Extra", []))
    if extras != set(project["optional-dependencies"]):
        sys.exit(f"{wheel.name} has the extras {sorted(extras)}, pyproject.toml has others")
    return metadata


def _check_sdist(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("README.md", "LICENSE", "pyproject.toml", "src/icestream/py.typed"):
        if name not in names:
            sys.exit(f"{sdist.name} lacks {name}")


def _check_installed(wheel: Path, folder: Path, version: str) -> None:
    """Install the wheel in an empty environment, and load and read a table there."""
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    constraints = REPOSITORY / "constraints.txt"
    _run(folder, python, "-m", "pip", "install", "-q", "--constraint", constraints, wheel)

    home = _run(folder, python, "-c", "import icestream; print(icestream.__file__)").strip()
    if not Path(home).is_relative_to(folder):
        sys.exit(f"the environment is not empty: it imports icestream from {home}")
    program = python.with_name("icestream")
    shown = _run(folder, program, "--version").split()[-1]
    if shown != version:
        sys.exit(f"icestream --version prints {shown}, the wheel is {version}")

    lines = ["id,name", *(f"{number},name {number}" for number in range(ROWS))]
    (folder / "people.csv").write_text("\n".join(lines) + "\n")
    _run(folder, program, "load", "people.csv", "--into", "shop.people", "--engine", "local")
    rows = _run(folder, program, "scan", "shop.people", "--format", "csv").splitlines()[1:]
    if sorted(rows) != sorted(f'{number},"name {number}"' for number in range(ROWS)):
        sys.exit(f"of {ROWS} rows that were loaded, the scan printed {len(rows)}: {rows[:2]}")


def _run(folder: Path, program: Path, *arguments: object) -> str:
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(program), *map(str, arguments)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{program.name} {' '.join(map(str, arguments))} failed:\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
