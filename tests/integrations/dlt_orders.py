"""A dlt pipeline that loads orders; as a program it may be made to die around its commit.

python -m tests.integrations.dlt_orders FOLDER [before|after]
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dlt
from pyiceberg.catalog.sql import SqlCatalog

from icestream.integrations import dlt_destination

ROWS = 25
FILE_ROWS = 10  # Files of a package are cut here: three jobs.


def settings(folder: Path) -> dict[str, str]:
    """Environment variables by which dlt keeps to the folder, tells nobody, and cuts files."""
    return {
        "DLT_DATA_DIR": str(folder / "dlt"),
        "RUNTIME__DLTHUB_TELEMETRY": "false",
        "RUNTIME__LOG_LEVEL": "CRITICAL",
        "DATA_WRITER__BUFFER_MAX_ITEMS": "5",
        "DATA_WRITER__FILE_MAX_ITEMS": str(FILE_ROWS),
        "LOAD__RAISE_ON_MAX_RETRIES": "3",
    }


def properties(folder: Path) -> dict[str, str]:
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder}/dlt-catalog.db",
        "warehouse": f"file://{folder}/dlt-warehouse",
    }


def catalog(folder: Path) -> SqlCatalog:
    return SqlCatalog("here", **properties(folder))


def pipeline(folder: Path, **options: Any) -> dlt.Pipeline:
    """The pipeline, which remembers its state in the folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        destination = dlt_destination.icestream_destination(
            catalog="here", catalog_properties=properties(folder), **options
        )
    return dlt.pipeline(
        "shop", destination=destination, dataset_name="raw", pipelines_dir=str(folder / "state")
    )


def orders(start: int, stop: int, **more: Any) -> Any:
    @dlt.resource(name="orders", primary_key="id")
    def rows() -> Iterator[dict[str, Any]]:
        for number in range(start, stop):
            yield {"id": number, "text": f"text {number}", **more}

    return rows()


def _die(around: str) -> None:
    real = dlt_destination.append

    def append(*args: Any, **kwargs: Any) -> Any:
        if around == "after":
            real(*args, **kwargs)
        os._exit(9)

    dlt_destination.append = append


if __name__ == "__main__":
    here = Path(sys.argv[1])
    os.environ.update(settings(here))
    started = pipeline(here)
    if len(sys.argv) > 2:
        _die(sys.argv[2])
        started.run(orders(0, ROWS), write_disposition="append")
    else:
        started.run()  # What is left of the run before.
