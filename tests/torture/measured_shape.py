"""What the process does whose memory is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset
import pyarrow.parquet  # noqa: F401

from icestream import IcestreamError, compact, load, scan
from tests.support.catalogs import make_catalog
from tests.support.tables import data_file_paths


def main(folder: str, verb: str, limit_bytes: int, options: dict[str, Any]) -> dict[str, Any]:
    """Read the table, compact it, or load its file, or the file beside it, into another table.

    Returns:
        The rows, or the error that refused them.
    """
    catalog = make_catalog(Path(folder))
    try:
        if verb in ("load", "merge"):
            path, key = str(Path(folder) / "lines.jsonl"), "id"
            if not Path(path).exists():
                table = catalog.load_table("db.t")
                path, key = data_file_paths(table)[0], table.schema().fields[0].name
            report: Any = load(
                path,
                f"db.{verb}",
                mode="merge" if verb == "merge" else "append",
                keys=key if verb == "merge" else None,
                engine="local",
                memory=limit_bytes,
                catalog=catalog,
            )
            return {"rows": report.rows_inserted}
        table = catalog.load_table("db.t")
        if verb == "compact":
            return {"rows": compact(table, memory=limit_bytes).rows_rewritten}
        batches = scan(table, memory=limit_bytes, **options)
        return {"rows": sum(batch.num_rows for batch in batches)}
    except IcestreamError as error:
        return {"error": type(error).__name__, "text": str(error)[:300]}
    finally:
        catalog.close()
