"""icestream as it was at another commit, as one more engine of a benchmark."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


class UnknownCommitError(Exception):
    """Git does not know the commit to compare with."""


def source_folder(commit: str) -> Path:
    """The `src` folder of a commit, unpacked once below `.bench/baselines`.

    Args:
        commit: Anything that git can resolve: a branch, a tag, a hash.

    Raises:
        UnknownCommitError: If git can't resolve it.
    """
    try:
        resolved = _git("rev-parse", "--verify", f"{commit}^{{commit}}").decode().strip()
    except subprocess.CalledProcessError as error:
        raise UnknownCommitError(f"git knows no commit {commit!r}") from error
    folder = REPOSITORY / ".bench" / "baselines" / resolved
    if not folder.exists():
        unfinished = folder.with_suffix(".unfinished")
        with tarfile.open(fileobj=io.BytesIO(_git("archive", resolved, "src"))) as archive:
            archive.extractall(unfinished, filter="data")
        unfinished.rename(folder)
    return folder / "src"


def engine_label(engine: str, baseline: str | None) -> str:
    """The name of an engine in tables and file names: `icestream`, or `icestream@main~3`."""
    return f"{engine}@{baseline}" if baseline else engine


def commits(engine: str, baseline: str | None) -> list[str | None]:
    """The commits of icestream to measure, in turns; None is this one. Other engines have none."""
    return [baseline, None] if baseline and engine.startswith("icestream") else [None]


def _git(*arguments: str) -> bytes:
    return subprocess.run(
        ["git", *arguments], cwd=REPOSITORY, capture_output=True, check=True
    ).stdout
