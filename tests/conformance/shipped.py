"""Pythons that lack icestream, and what a session does on them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa

import icestream.spark as ice_spark
from tests.conformance.engines import opened

_ROWS = 100


def bare_python(folder: Path) -> Path:
    """A Python with all packages of this one but icestream, which is not installed as a copy.

    A path file names this environment's packages. Python does not follow path files in there, and
    one of those is how icestream is found here.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = folder / "bin" / "python"
    found = subprocess.run(
        [python, "-c", "import pyiceberg, icestream"], capture_output=True, text=True
    )
    assert "No module named 'icestream'" in found.stderr
    return python


def packed_environment(folder: Path) -> Path:
    """The same with icestream in it, packed."""
    import icestream

    bare_python(folder / "environment")
    packages = next((folder / "environment" / "lib").glob("*/site-packages"))
    shutil.copytree(Path(icestream.__file__).parent, packages / "icestream")
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder / "environment", arcname=".")
    return archive


def shipped_round(
    spark: Any, properties: dict[str, str], table: str, environment: str | None
) -> tuple[str, list[int]]:
    """Fail without the code; ship it; append, merge and read, by helpers and by the format.

    Returns:
        The failure, and the ids.
    """
    catalog = opened(properties)
    frame = spark.range(0, _ROWS, 1, 2).selectExpr("id", "id as part", "'old' as text")
    try:
        try:
            ice_spark.append(frame, table, catalog=catalog)
            failure = ""
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        ice_spark.ship(spark, environment=environment)
        ice_spark.append(frame, table, catalog=catalog)
        more = spark.range(_ROWS // 2, _ROWS * 2).selectExpr("id", "id as part", "'new' as text")
        ice_spark.merge(more, table, catalog=catalog, on="id")
        last = spark.range(_ROWS * 2, _ROWS * 3).selectExpr("id", "id as part", "'last' as text")
        options = {f"catalog.{name}": value for name, value in properties.items()}
        options["catalog"] = "tests"
        last.write.format("icestream").mode("append").options(**options).save(table)
        found: pa.Table = ice_spark.read(spark, table, catalog=catalog, columns=["id"]).toArrow()
        by_format = spark.read.format("icestream").options(**options).load(table)
        assert by_format.count() == found.num_rows
        return failure, sorted(found["id"].to_pylist())
    finally:
        catalog.close()
