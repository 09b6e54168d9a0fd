"""Spark with Iceberg's Java runtime, driven by JSON lines: a request in, an answer out.

Run by .venv-interop's Python. The first answer tells where the REST catalog is that Spark knows as
`java`; a request is SQL and, if its rows are wanted, the Arrow file to put them in.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import pyarrow as pa

import icestream.spark as ice_spark
from tests.interop.fetch_jars import fetched_jars
from tests.interop.rest_server import RestServer


def main() -> None:
    """Serve until standard input ends; answers go where standard output was."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What Spark prints must not be taken for an answer.
    folder = Path(sys.argv[1])
    server = RestServer(folder)
    settings = {**session_settings(server.uri, folder), "spark.sql.shuffle.partitions": "2"}
    spark = ice_spark.session("local[2]", config=settings)
    print(json.dumps({"uri": server.uri}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps({"error": _answer(spark, json.loads(line))}), file=answers, flush=True)
    spark.stop()
    server.stop()


def session_settings(uri: str, folder: Path) -> dict[str, str]:
    """What a session needs to know the REST catalog as `java`, through Iceberg's runtime."""
    catalog = "spark.sql.catalog.java"
    return {
        "spark.jars": ",".join(fetched_jars("spark")),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "rest",
        f"{catalog}.uri": uri,
        # Others change the tables: what Spark has seen before must not be used again.
        f"{catalog}.cache-enabled": "false",
        "spark.sql.defaultCatalog": "java",
        "spark.sql.warehouse.dir": f"{folder}/spark-warehouse",
    }


def _answer(spark: Any, request: dict[str, str]) -> str | None:
    try:
        rows = spark.sql(request["sql"]).toArrow()
        if path := request.get("answer"):
            with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
                writer.write_table(rows)
    except Exception:
        lines = traceback.format_exc().splitlines()
        return "\n".join(line for line in lines if not line.lstrip().startswith("at "))
    return None


if __name__ == "__main__":
    main()
