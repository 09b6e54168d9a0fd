"""Jars of sources: which ones there are, and the drivers in them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from icestream.errors import InvalidArgumentError
from icestream.pipeline.engines.spark_jars import driver_class, named_jars
from icestream.pipeline.request.source_spec import SourceSpec

_SERVICE = "META-INF/services/java.sql.Driver"


def _jar(path: Path, **files: str) -> str:
    with zipfile.ZipFile(path, "w") as jar:
        for name, text in files.items():
            jar.writestr(name, text)
    return str(path)


def _source(jar: str) -> SourceSpec:
    return SourceSpec(kind="jdbc", url="jdbc:x:y", table="t", options={"jar": jar})


def test_jars_of_all_sources_are_named_once_in_order(tmp_path: Path) -> None:
    a, b = _jar(tmp_path / "a.jar"), _jar(tmp_path / "b.jar")
    assert named_jars([_source(f"{b}, {a},"), _source(a)]) == (b, a)
    assert named_jars([SourceSpec(kind="jdbc", url="jdbc:x:y", table="t")]) == ()


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_local_jar_that_does_not_exist_is_refused(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"c\.jar' does not exist"):
        named_jars([_source(f"{prefix}{tmp_path}/c.jar")])
    assert named_jars([_source("s3://bucket/c.jar")]) == ("s3://bucket/c.jar",), "Spark looks"


def test_the_driver_is_the_first_that_a_jar_declares(tmp_path: Path) -> None:
    none = _jar(tmp_path / "none.jar", other="x")
    some = _jar(tmp_path / "some.jar", **{_SERVICE: "# a comment\n\norg.x.Driver # old\norg.y.D"})
    (tmp_path / "text.jar").write_text("not a zip file")
    text = str(tmp_path / "text.jar")
    assert driver_class([text, "s3://bucket/far.jar", none, some]) == "org.x.Driver"
    assert driver_class([f"file://{some}"]) == "org.x.Driver"
    assert driver_class([none]) is None
