"""Loads with `engine="iceberg-jar"` on a Spark of .venv-interop; answers are JSON.

Run by .venv-interop's Python. Standard input has the folder of a SQLite catalog, the settings of
the session, and calls of `icestream.load` or `icestream.run` with their arguments. Standard output
has the report of each, or the kind and the text of its error.
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
    os.dup2(2, 1)  # Spark may print to standard output.
    request = json.load(sys.stdin)
    spark = ice_spark.session("local[2]", memory="64MB", config=request["settings"])
    catalog = make_catalog(Path(request["folder"]))
    json.dump([_call(spark, catalog, **call) for call in request["calls"]], answers)
    answers.close()
    catalog.close()
    spark.stop()


def _call(spark: Any, catalog: Any, **arguments: Any) -> dict[str, Any]:
    try:
        if "pipeline" in arguments:
            path = Path(arguments.pop("pipeline"))
            report: Any = ice.run(path, catalog=catalog, spark=spark, state=path.parent / "state")
        else:
            report = ice.load(catalog=catalog, state="", spark=spark, **arguments)
    except ice.IcestreamError as error:
        return {"error": type(error).__name__, "text": str(error)}
    return json.loads(json.dumps(report.to_dict(), default=str))


if __name__ == "__main__":
    main()
