"""An incremental merge that dies by SIGKILL at a given call: run as a process of its own."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import icestream as ice
from icestream.commit import committer
from icestream.pipeline import load_execution
from icestream.pipeline.engines import local_rows
from icestream.pipeline.inputs import checkpoint
from tests.support.tables import make_catalog

MOMENTS: dict[str, tuple[Any, str]] = {
    "before the intent": (checkpoint.Checkpoint, "begin"),
    "before columns are decided": (load_execution.LoadInputs, "with_columns"),
    "before the first row": (local_rows.LocalRows, "open"),
    "before the commit": (committer.Committer, "commit"),
    "before it is done": (checkpoint.Checkpoint, "finish"),
    "before the report": (load_execution, "store_report"),
}


def load(folder: Path) -> None:
    catalog = make_catalog(folder)
    try:
        ice.load(
            folder / "inbox",
            "db.t",
            mode="merge",
            keys="id",
            incremental=True,
            engine="local",
            catalog=catalog,
            state=folder / "state",
        )
    finally:
        catalog.close()


def main(folder: Path, moment: str, *, after: bool) -> None:
    home, name = MOMENTS[moment]
    real: Callable[..., Any] = getattr(home, name)

    def killed(*arguments: Any, **options: Any) -> Any:
        if after:
            real(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(home, name, killed)
    load(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], after=sys.argv[3] == "after")
