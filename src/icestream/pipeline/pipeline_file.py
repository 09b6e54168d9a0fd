"""A pipeline file: several loads in YAML, checked before anything is read.

docs/pipeline-file.md describes it for users.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog

from icestream.errors import IcestreamError, InvalidArgumentError
from icestream.pipeline.checks import Check
from icestream.pipeline.choice import check_keys
from icestream.pipeline.load_spec import LOAD_KEYS, LoadSpec
from icestream.pipeline.located_yaml import LocatedYaml
from icestream.pipeline.variables import expand_variables
from icestream.upsert.options import MergeOptions

_TOP = ("name", "catalog", "defaults", "loads")
_LOAD = ("after", "tests")
# What a run says itself, and what must be each load's own.
_NOT_IN_FILE = ("load_id",)
_NOT_A_DEFAULT = ("source", "sources", "into", "checkpoint", "quarantine", *_NOT_IN_FILE)
_BOOLEANS = ("create", "incremental", "again", "skip_unchanged")
_OF_MERGES = ("keys", *(each.name for each in fields(MergeOptions) if each.name != "schema_mode"))
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_SUBJECT = re.compile(r"(\w+)\b")


@dataclass(frozen=True, slots=True)
class PipelineLoad:
    """One load of a pipeline.

    Attributes:
        name: Its name.
        spec: What is loaded.
        tests: What the result must be like.
        after: The loads that must be done before, as the file says.
        fingerprint: Another one if the load is written differently.
    """

    name: str
    spec: LoadSpec
    tests: tuple[Check, ...] = ()
    after: tuple[str, ...] = ()
    fingerprint: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """A pipeline.

    Attributes:
        name: Its name.
        path: The file.
        loads: Its loads, in the order of the file.
    """

    name: str
    path: Path
    loads: tuple[PipelineLoad, ...]

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        *,
        variables: Mapping[str, str] | None = None,
        catalog: str | Catalog | None = None,
    ) -> PipelineFile:
        """Read a file and check all of it.

        Args:
            path: The file.
            variables: Values of variables, over those of the environment.
            catalog: A catalog, in place of the file's.

        Raises:
            InvalidArgumentError: With the line, and what may have been meant.
        """
        file = Path(path)
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgumentError(
                f"the pipeline {file} can't be read: {getattr(error, 'strerror', None) or error}"
            ) from error
        known = {**os.environ, **(variables or {})}
        document = LocatedYaml.parse(text, str(file), lambda text: expand_variables(text, known))
        return _Reading(document, file, catalog).pipeline()


class _Reading:
    """Makes a pipeline of a document."""

    def __init__(self, document: LocatedYaml, file: Path, catalog: str | Catalog | None) -> None:
        self._document = document
        self._file = file
        self._catalog = catalog

    def pipeline(self) -> PipelineFile:
        top = self._mapping((), self._document.value, "the pipeline")
        self._known((), top, _TOP, "the pipeline")
        name = top.get("name", self._file.stem)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise self._error(
                ("name",), f"name is {name!r}: give letters, digits, '.', '-' and '_', 100 at most"
            )
        defaults = self._defaults(top)
        loads = self._mapping(("loads",), top.get("loads"), "loads")
        if not loads:
            raise self._error(("loads",), "there are no loads: describe one under 'loads'")
        made = tuple(self._load(each, told, defaults) for each, told in loads.items())
        for load in made:
            self._check_after(load, tuple(loads))
        return PipelineFile(name, self._file, made)

    def _defaults(self, top: Mapping[str, Any]) -> dict[str, Any]:
        told = top.get("defaults")
        defaults = {} if told is None else self._mapping(("defaults",), told, "defaults")
        allowed = tuple(key for key in LOAD_KEYS if key not in _NOT_A_DEFAULT)
        self._known(("defaults",), defaults, allowed, "defaults")
        defaults = self._booleans(("defaults",), defaults)
        catalog = self._catalog if self._catalog is not None else top.get("catalog")
        if catalog is not None and not isinstance(catalog, (str, Catalog)):
            raise self._error(("catalog",), f"catalog is {catalog!r}: give a catalog's name")
        if catalog is not None:
            defaults["catalog"] = catalog
        return defaults

    def _load(self, name: str, told: Any, defaults: Mapping[str, Any]) -> PipelineLoad:
        path = ("loads", name)
        if not _NAME.fullmatch(name):
            raise self._error(
                path, f"a load is called {name!r}: give letters, digits, '.', '-' and '_'"
            )
        mapping = dict(self._mapping(path, told, f"load {name!r}"))
        allowed = tuple(key for key in LOAD_KEYS if key not in _NOT_IN_FILE)
        self._known(path, mapping, (*allowed, *_LOAD), f"load {name!r}")
        if self._catalog is not None:
            mapping.pop("catalog", None)
        tests = self._tests(path, mapping.pop("tests", None))
        after = self._after(path, mapping.pop("after", None))
        mapping = self._booleans(path, mapping)
        if isinstance(mapping.get("checkpoint"), str):
            mapping["checkpoint"] = str(self._folder / mapping["checkpoint"])
        try:
            spec = LoadSpec.from_mapping(
                name, mapping, folder=self._folder, defaults=self._for(mapping, defaults)
            )
        except (IcestreamError, TypeError) as error:
            raise self._error(self._blamed(path, mapping, str(error)), str(error)) from error
        plain = {**defaults, **mapping}
        plain.pop("catalog", None)
        return PipelineLoad(name, spec, tests, after, _fingerprint(plain))

    def _for(self, mapping: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Those defaults that mean something for a load: a merge's options are a merge's only."""
        mode = mapping.get("mode", defaults.get("mode", "append"))
        left_out = () if mode == "merge" else _OF_MERGES
        return {key: value for key, value in defaults.items() if key not in left_out}

    @property
    def _folder(self) -> Path:
        return self._file.absolute().parent

    def _tests(self, path: tuple[str, ...], told: Any) -> tuple[Check, ...]:
        if told is None:
            return ()
        if not isinstance(told, list):
            raise self._error((*path, "tests"), "tests is no list: write '- not_null: [id]'")
        tests = []
        for number, each in enumerate(told):
            try:
                tests.append(Check.parse(each))
            except InvalidArgumentError as error:
                raise self._error((*path, "tests", number), str(error)) from error
        names = [test.name for test in tests]
        for number, name in enumerate(names):
            if name in names[:number]:
                raise self._error((*path, "tests", number), f"there are two tests {name!r}")
        return tuple(tests)

    def _after(self, path: tuple[str, ...], told: Any) -> tuple[str, ...]:
        given = [told] if isinstance(told, str) else (told or [])
        if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
            raise self._error((*path, "after"), f"after is {told!r}: name loads, as in [orders]")
        return tuple(given)

    def _check_after(self, load: PipelineLoad, names: tuple[str, ...]) -> None:
        others = tuple(name for name in names if name != load.name)
        for each in load.after:
            try:
                check_keys(f"after of load {load.name!r}", [each], others)
            except InvalidArgumentError as error:
                raise self._error(("loads", load.name, "after"), str(error)) from error

    def _booleans(self, path: tuple[str, ...], mapping: Mapping[str, Any]) -> dict[str, Any]:
        """What a variable says of a switch is text."""
        found = dict(mapping)
        for key in _BOOLEANS:
            value = found.get(key)
            if isinstance(value, str) and value.lower() in ("true", "false"):
                found[key] = value.lower() == "true"
            elif value is not None and not isinstance(value, bool):
                raise self._error((*path, key), f"{key} is {value!r}: give true or false")
        return found

    def _mapping(self, path: tuple[str, ...], value: Any, what: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._error(path, f"{what} is {value!r}: give names and values, as in 'a: b'")
        return value

    def _known(
        self, path: tuple[str, ...], mapping: Mapping[str, Any], known: tuple[str, ...], what: str
    ) -> None:
        for key in mapping:
            try:
                check_keys(what, [key], known)
            except InvalidArgumentError as error:
                raise self._error((*path, key), str(error)) from error

    def _blamed(
        self, path: tuple[str, ...], mapping: Mapping[str, Any], message: str
    ) -> tuple[str, ...]:
        """What a message is about: the key that it begins with, or the load as a whole."""
        first = _SUBJECT.match(message)
        if first and first[1] in mapping:
            return (*path, first[1])
        if first and first[1] in ("a", "options", "format", "the"):
            return next(((*path, key) for key in ("source", "sources") if key in mapping), path)
        return path

    def _error(self, path: tuple[str | int, ...], message: str) -> InvalidArgumentError:
        return self._document.error(path, message)


def _fingerprint(told: Mapping[str, Any]) -> str:
    text = json.dumps(told, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
