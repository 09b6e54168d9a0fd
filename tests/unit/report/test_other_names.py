"""Names of other libraries are answered with the names that exist."""

from __future__ import annotations

import inspect
import pickle
import re
from contextlib import closing

import pytest

import icestream as ice
import icestream.spark as ice_spark
from icestream import pipeline, read, write
from icestream.report.other_names import ARGUMENTS, FUNCTIONS, METHODS


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("upsert", r"use icestream\.merge\(table, source, on=\[\.\.\.\]\)$"),
        ("read_table", r"use icestream\.scan\(table\)$"),
        ("rollback", "use the command `icestream rollback`"),
        ("sql", r"use icestream\.scan\(table\)\.to_duckdb\(\)"),
        ("ovewrite", "did you mean 'overwrite'"),
        ("xyz", "^module 'icestream' has no attribute 'xyz'$"),
    ],
)
def test_a_function_of_another_library_is_answered(name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=instead):
        getattr(ice, name)


@pytest.mark.parametrize(
    ("package", "instead"), [(read, "scan"), (write, "append"), (pipeline, "run")]
)
def test_a_package_that_is_called_is_answered(package, instead: str) -> None:
    with pytest.raises(TypeError, match=rf"is a package, not a function: use icestream\.{instead}"):
        package("db.t")


@pytest.mark.parametrize(
    ("function", "name", "instead"),
    [
        (ice.scan, "row_filter", "use where=$"),
        (ice.scan, "progress", r"NotebookProgress\(\)\.over\(scan\)$"),
        (ice.scan, "selected_fields", "use columns=$"),
        (ice.scan, "n_rows", "use limit=$"),
        (ice.merge, "join_cols", "use on=$"),
        (ice.append, "df", "use source=$"),
        (ice_spark.merge, "join_cols", "use on=$"),
        (ice_spark.read, "row_filter", "use where=$"),
        (ice.append, "snapshot_properties", "use properties=$"),
        (ice.delete, "delete_filter", "use where=$"),
        (ice.load, "write_disposition", "use mode=$"),
        (ice.load, "on", "use keys=$"),
        (ice.scan, "colums", "did you mean 'columns'"),
        (ice.health, "xyz", r"^health\(\) has no argument 'xyz'$"),
    ],
)
def test_an_argument_of_another_library_is_answered(function, name: str, instead: str) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=instead) as error:
        function("db.t", **{name: 1})
    assert isinstance(error.value, TypeError)
    assert pickle.loads(pickle.dumps(error.value)).args == error.value.args


def test_a_method_of_another_library_is_answered() -> None:
    scan = ice.Scan.__new__(ice.Scan)
    with pytest.raises(AttributeError, match=r"use to_reader\(\)$"):
        _ = scan.to_arrow_batch_reader  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="did you mean 'to_polars'"):
        _ = scan.to_polar  # type: ignore[attr-defined]


def test_the_names_that_are_recommended_exist() -> None:
    public = {name: getattr(ice, name) for name in ice.__all__}
    arguments = {
        each
        for value in public.values()
        if inspect.isfunction(value)
        for each in inspect.signature(value).parameters
    }
    assert {each for names in ARGUMENTS.values() for each in names} <= arguments
    for instead in (*FUNCTIONS.values(), *METHODS.values()):
        assert set(re.findall(r"icestream\.([a-z]+)", instead)) <= {
            *public,
            "catalogs",
            "integrations",
        }
        assert set(re.findall(r"^([a-z_]+)\(", instead)) <= set(dir(ice.Scan))
    assert not FUNCTIONS.keys() & public.keys()
    assert not METHODS.keys() & set(dir(ice.Scan))


def test_functions_still_travel_to_other_processes() -> None:
    for name in ("read_splits", "write_files"):
        function = getattr(ice, name)
        assert pickle.loads(pickle.dumps(function)) is function


def test_functions_that_take_any_argument_pass_it_on() -> None:
    with closing(ice.load_catalog("any", type="sql", uri="sqlite://", warehouse="w")) as catalog:
        assert catalog.properties["warehouse"] == "w"
