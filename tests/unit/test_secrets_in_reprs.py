"""No dataclass of the package shows a secret in its repr, which tracebacks and logs may have."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.io import load_file_io

import icestream
from icestream.pipeline.request.load_spec import LoadSpec
from icestream.pipeline.request.source_spec import SourceSpec

_ADDRESS = "postgresql://me:hush@host/db?password=hush"
_PROPERTIES = {"uri": _ADDRESS, "s3.secret-access-key": "hush", "header.X-Own": "hush"}
# Texts of these names may be addresses. Paths are: of sources only, not those of a table's files.
_ADDRESSES = {"url", "uri", "remote", "query"}
_SOURCE_PATHS = {"path", "paths", "base", "_done"}
_MAPPINGS = ("Mapping[str, str]", "Mapping[str, Any]", "dict[str, str]", "dict[str, Any]")
# Mappings that hold nothing that a user has given as a property.
_OTHER_MAPPINGS = {
    "LoadPlan.columns": "types of columns, by name",
    "LoadPlan.new_columns": "types of columns, by name",
    "ParquetSettings.options": "arguments of PyArrow's writer",
    "ReadOptions.scan": "arguments of icestream.scan",
    "_Api.instruments": "instruments of OpenTelemetry",
}


def _dataclasses() -> Iterator[type[Any]]:
    for module in pkgutil.walk_packages(icestream.__path__, "icestream."):
        if module.name.endswith("__main__"):
            continue
        loaded = importlib.import_module(module.name)
        for each in vars(loaded).values():
            if (
                isinstance(each, type)
                and dataclasses.is_dataclass(each)
                and each.__module__ == module.name
            ):
                yield each


def _secret_value(owner: type[Any], field: dataclasses.Field[Any]) -> object:
    """What the field may hold that has secrets; None if it holds nothing of the kind."""
    kind, name = str(field.type), field.name
    if f"{owner.__name__}.{name}" in _OTHER_MAPPINGS:
        return None
    if kind.startswith(_MAPPINGS) or (owner.__name__, name) == ("LocatedYaml", "value"):
        return _PROPERTIES
    if kind == "str | Catalog | None":  # `icestream.load` takes a mapping, too
        return _PROPERTIES
    if kind == "Catalog":
        return InMemoryCatalog("c", **{"s3.secret-access-key": "hush"})
    if kind == "FileIO":
        return load_file_io({"s3.secret-access-key": "hush"}, location="s3://bucket/a")
    if not kind.startswith(("str", "tuple[str", "set[tuple[str")):
        return None
    is_path = owner.__module__.startswith("icestream.pipeline") and name in _SOURCE_PATHS
    if name in _ADDRESSES or is_path:
        address = "s3://key:hush@bucket/a?secret_key=hush" if is_path else _ADDRESS
        if kind.startswith("set["):
            return {(address, 1, None)}
        return (address,) if kind.startswith("tuple[") else address
    return None


def _filled(owner: type[Any], kind: str | None = None) -> tuple[Any, set[str]]:
    made = object.__new__(owner)
    fields = dataclasses.fields(owner)
    values = {field.name: _secret_value(owner, field) for field in fields}
    for name, value in values.items():
        object.__setattr__(made, name, value)
    if kind is not None:
        object.__setattr__(made, "kind", kind)
    return made, {name for name, value in values.items() if value is not None}


_ALL = {f"{each.__module__}.{each.__name__}": each for each in _dataclasses()}
_WITH_SECRETS = {name: each for name, each in _ALL.items() if _filled(each)[1]}


@pytest.mark.parametrize("name", _WITH_SECRETS)
def test_a_repr_shows_no_secret(name: str) -> None:
    made, held = _filled(_WITH_SECRETS[name])
    assert "hush" not in repr(made), held


@pytest.mark.parametrize("kind", ["files", "table", "jdbc", "spark", "stream"])
def test_the_repr_of_a_source_shows_no_secret(kind: str) -> None:
    made, _ = _filled(SourceSpec, kind)
    assert "hush" not in repr(made)


def test_the_walk_finds_what_holds_secrets() -> None:
    names = {each.__name__ for each in _WITH_SECRETS.values()}
    assert {"FileStore", "LoadSpec", "ReadOptions", "SinkOptions", "SourceSpec"} <= names


def test_a_mapping_that_is_left_out_is_still_there() -> None:
    fields = {f"{c.__name__}.{f.name}" for c in _ALL.values() for f in dataclasses.fields(c)}
    assert set(_OTHER_MAPPINGS) <= fields


def test_the_repr_of_a_load_as_users_write_it_shows_no_secret() -> None:
    source = {
        "jdbc": "jdbc:postgresql://host/db?password=hush",
        "table": "t",
        "options": {"user": "me", "password": "hush"},
    }
    remote = "sc://host;token=hush"
    shown = repr(LoadSpec.of([source], "db.t", remote=remote, properties={"password": "hush"}))
    assert "hush" not in shown
    assert "jdbc:postgresql://host/db t" in shown
