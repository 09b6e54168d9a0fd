"""icestream at another commit, as an additional engine of a benchmark."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


class UnknownCommitError(Exception):
    """Git does not know the commit to compare with."""


def source_folder(commit: str) -> Path:
    """Return the `src` folder of a commit, unpacked below `.bench/baselines`.

    Args:
        commit: A branch, a tag or a hash.

    Raises:
        UnknownCommitError: If git does not know the commit.
    """
    try:
        resolved = _git("rev-parse", "--verify", f"{commit}^{{commit}}").decode().strip()
    except subprocess.CalledProcessError as error:
        raise UnknownCommitError(f"git does not know the commit {commit!r}") from error
    folder = REPOSITORY / ".bench" / "baselines" / resolved
    if not folder.exists():
        unfinished = folder.with_suffix(".unfinished")
        with tarfile.open(fileobj=io.BytesIO(_git("archive", resolved, "src"))) as archive:
            archive.extractall(unfinished, filter="data")
        unfinished.rename(folder)
    return folder / "src"


def engine_label(engine: str, baseline: str | None) -> str:
    """Return the name of an engine in tables and files: `icestream`, or `icestream@main~3`."""
    return f"{engine}@{baseline}" if baseline else engine


def commits(engine: str, baseline: str | None) -> list[str | None]:
    """Return the commits to measure, for icestream only. None is the current source."""
    return [baseline, None] if baseline and engine.startswith("icestream") else [None]


def _git(*arguments: str) -> bytes:
    return subprocess.run(
        ["git", *arguments], cwd=REPOSITORY, capture_output=True, check=True
    ).stdout
