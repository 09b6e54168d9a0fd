"""A dlt pipeline with Iceberg tables in a folder; as a program it may be made to die in its load.

python -m tests.integrations.dlt_lake FOLDER [before|during|after]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import dlt

from icestream.integrations import dlt_table_load
from icestream.integrations.dlt_filesystem import filesystem

LOAD_ID = "icestream.load-id"


def settings(folder: Path) -> dict[str, str]:
    """Environment variables by which dlt keeps to the folder, and tells nobody."""
    return {
        "DLT_DATA_DIR": str(folder / "dlt"),
        "RUNTIME__DLTHUB_TELEMETRY": "false",
        "RUNTIME__LOG_LEVEL": "CRITICAL",
        "LOAD__RAISE_ON_MAX_RETRIES": "3",
    }


def lake(folder: Path, **options: Any) -> dlt.Pipeline:
    """The pipeline, which remembers its state in the folder."""
    return dlt.pipeline(
        "shop",
        destination=filesystem(f"file://{folder}/lake", **options),
        dataset_name="raw",
        pipelines_dir=str(folder / "state"),
    )


def _die(around: str) -> None:
    real = dlt_table_load.append

    def append(table: Any, rows: Any, **settings: Any) -> Any:
        if around == "during":
            rows.dropped = lambda batch: os._exit(9)
        if around != "before":
            real(table, rows, **settings)
        os._exit(9)

    dlt_table_load.append = append


if __name__ == "__main__":
    here = Path(sys.argv[1])
    os.environ.update(settings(here))
    started = lake(here)
    if len(sys.argv) > 2:
        _die(sys.argv[2])
        rows = [{"id": number} for number in range(25)]
        started.run(rows, table_name="orders", table_format="iceberg")
    else:
        started.run()  # What is left of the run before.
