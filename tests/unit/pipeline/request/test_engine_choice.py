"""The engine of a load that names none: Spark if it can run here, else this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

import icestream as ice
from icestream.errors import MissingExtraError
from icestream.pipeline.request import engine_choice
from icestream.pipeline.request.engine_choice import choose_engine, engine_text
from icestream.pipeline.request.load_spec import LoadSpec


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_choice, "why_no_spark", lambda: "PySpark is not installed")


def _chosen(source: object = "a.csv", **options: Any) -> tuple[str, str | None]:
    spec, reason = choose_engine(LoadSpec.of(source, "db.t", **options))
    return spec.engine, reason


def test_spark_is_chosen_where_it_is_installed() -> None:
    assert _chosen() == ("spark", "PySpark is installed")
    assert _chosen(engine="local") == ("local", None)


@pytest.mark.usefixtures("no_spark")
def test_without_pyspark_a_load_runs_in_this_process_unless_it_needs_spark() -> None:
    assert _chosen() == ("local", "PySpark is not installed")
    assert _chosen(transform="SELECT 1 FROM source")[0] == "local"
    assert _chosen(master="local[2]") == ("spark", "master is given")
    assert _chosen(remote="sc://host") == ("spark", "remote is given")
    assert _chosen({"path": "a.avro", "format": "avro"})[0] == "spark"
    assert _chosen(transform=lambda frame: frame)[0] == "spark"
    assert _chosen(transform="SELECT 1 FROM source", transform_engine="duckdb")[0] == "spark"
    assert choose_engine(LoadSpec.of("a.csv", "db.t"), object())[1] == "a session is given"


def test_the_choice_is_said_with_its_reason() -> None:
    assert engine_text("local", "there is no Java for Spark") == (
        "in this process, because there is no Java for Spark"
    )
    assert engine_text("spark", None) is None


@pytest.mark.usefixtures("no_spark")
def test_reports_and_plans_say_which_engine_and_why(catalog: Catalog, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id\n1\n")
    reason = "PySpark is not installed"
    plan = ice.load(file, "db.t", catalog=catalog, state=tmp_path / "state", dry_run=True)
    assert (plan.engine, plan.engine_reason) == ("local", reason)
    report = ice.load(file, "db.t", catalog=catalog, state=tmp_path / "state")
    assert (report.engine, report.engine_reason) == ("local", reason)


def test_a_load_that_names_spark_is_told_of_the_other_engine(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str = "pyspark") -> None:
        raise MissingExtraError("PySpark is not installed")

    monkeypatch.setattr("icestream.pipeline.engines.spark_engine.pyspark_module", fail)
    (tmp_path / "a.csv").write_text("id\n1\n")
    with pytest.raises(MissingExtraError) as refusal:
        ice.load(tmp_path / "a.csv", "db.t", catalog=catalog, engine="spark", state="")
    assert refusal.value.__notes__ == ["engine='local' loads in this process, without Spark"]
