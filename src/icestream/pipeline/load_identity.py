"""What a load is, so that the same load is known again: its definition, and its inputs as found.

Files are known by path, size and time of change; tables by their snapshot. A database, a stream, a
data frame or what a Python function makes of rows may differ each time, and is never the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyiceberg.table.refs import MAIN_BRANCH

from icestream.commit.load_id import find_load, inputs_load_id
from icestream.pipeline.load_input import LoadInput, LoadInputs
from icestream.pipeline.load_spec import LoadSpec
from icestream.pipeline.load_target import LoadTarget
from icestream.pipeline.source_spec import SourceSpec

_ACCESS = ("user", "password")


@dataclass(frozen=True, slots=True)
class LoadIdentity:
    """A load's definition and inputs, as digests.

    Attributes:
        definition: Of everything that decides what rows of the sources become.
        inputs: Of what is read; None if a source can't be known again.
        is_append: Whether a second load would add the rows a second time.
    """

    definition: str
    inputs: str | None
    is_append: bool

    @classmethod
    def of(cls, spec: LoadSpec, inputs: LoadInputs) -> LoadIdentity:
        """The identity of a load whose sources were found."""
        found = None
        if not callable(spec.transform):
            found = _digest_of_inputs(inputs.inputs)
        return cls(_digest(_definition(spec)), found, spec.mode == "append")

    @property
    def load_id(self) -> str | None:
        """The id of an append, the same for the same inputs; None if it has none of its own."""
        if not self.is_append or self.inputs is None:
            return None
        return inputs_load_id(self.definition, self.inputs)


IsCommitted = Callable[[str], bool]
Naming = Callable[[LoadIdentity, IsCommitted], str | None]
"""Decides under which id a load is committed."""


def name_load(spec: LoadSpec) -> Naming:
    """How a load that nobody else names is named: an append by its inputs.

    With `again`, inputs that were loaded before are loaded without an id.
    """

    def name(identity: LoadIdentity, is_committed: IsCommitted) -> str | None:
        load_id = identity.load_id
        if load_id is None or (spec.again and is_committed(load_id)):
            return None
        return load_id

    return name


def load_id_of(
    spec: LoadSpec, inputs: LoadInputs, target: LoadTarget, naming: Naming
) -> str | None:
    """The id of a load whose sources were found."""

    def is_committed(load_id: str) -> bool:
        if target.table is None:
            return False
        branch = spec.branch or MAIN_BRANCH
        return find_load(target.table.metadata, branch, load_id) is not None

    return naming(LoadIdentity.of(spec, inputs), is_committed)


def _definition(spec: LoadSpec) -> dict[str, Any]:
    """What decides the result; not where it runs, with how much memory, or what it is called."""
    schema = spec.schema
    return {
        "mode": spec.mode,
        "schema_mode": spec.schema_mode,
        "transform": None if callable(spec.transform) else spec.transform,
        "schema": None if schema is None else [[each.name, str(each.type)] for each in schema],
        "bad_records": spec.bad_records,
        "merge": {key: str(value) for key, value in spec.merge_options.items()},
        "sources": [_source(source) for source in spec.sources],
    }


def _source(source: SourceSpec) -> dict[str, Any]:
    """What of a source decides how it is read: not its files, and nothing secret."""
    options = {
        key: str(value)
        for key, value in source.options.items()
        if "." not in str(key) and key not in _ACCESS
    }
    columns = None if source.columns is None else list(source.columns)
    return {
        "kind": source.kind,
        "format": source.format,
        "options": options,
        "hive_partitions": source.hive_partitions,
        "where": source.where,
        "columns": columns,
        "text": source.text if source.kind in ("jdbc", "spark") else None,
    }


def _digest_of_inputs(inputs: Iterable[LoadInput]) -> str | None:
    digest = hashlib.sha256()
    for each in inputs:
        if each.files is not None:
            for file in sorted(each.files.files, key=lambda file: file.path):
                if file.modified_ns is None:
                    return None
                digest.update(_line([file.path, file.bytes, file.modified_ns]))
        elif each.point is not None:
            uuid = str(each.point.table.metadata.table_uuid)
            digest.update(_line([uuid, each.point.snapshot_id]))
        else:
            return None
        digest.update(b"\n")
    return digest.hexdigest()[:32]


def _digest(document: object) -> str:
    return hashlib.sha256(_line(document)).hexdigest()[:16]


def _line(document: object) -> bytes:
    return json.dumps(document, sort_keys=True).encode() + b"\n"
