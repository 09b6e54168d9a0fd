"""Loads on a Spark of .venv-interop, for which there is a `spark-avro`; answers are JSON.

Run by .venv-interop's Python. Standard input says which settings the session has and which sources
are loaded, one after another, into `db.t` of the catalog below a folder; standard output what
became of each: a report, or the kind and the text of an error.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import icestream as ice
import icestream.spark as ice_spark
from tests.support.catalogs import make_catalog


def main() -> None:
    """Answer one request."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What Spark prints must not be taken for an answer.
    request = json.load(sys.stdin)
    spark = ice_spark.session("local[2]", memory="64MB", config=request["settings"])
    catalog = make_catalog(Path(request["folder"]))
    json.dump([_load(spark, catalog, source) for source in request["sources"]], answers)
    answers.close()
    catalog.close()
    spark.stop()


def _load(spark: Any, catalog: Any, source: Any) -> dict[str, Any]:
    try:
        report = ice.load(source, "db.t", catalog=catalog, state="", spark=spark)
    except ice.IcestreamError as error:
        return {"error": type(error).__name__, "text": str(error)}
    return report.to_dict()


if __name__ == "__main__":
    main()
