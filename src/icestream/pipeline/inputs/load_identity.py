"""The identity of a load: digests of its options and inputs, to recognize a repeated load.

Files are identified by path, size and modification time, and tables by their snapshot. Databases,
streams, DataFrames and the results of Python functions may differ each time, so they have no
identity.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from icestream.commit.outcome.load_id import inputs_load_id
from icestream.pipeline.inputs.load_input import LoadInput, LoadInputs
from icestream.pipeline.inputs.load_target import LoadTarget
from icestream.pipeline.request.load_spec import LoadSpec
from icestream.pipeline.request.source_spec import SourceSpec

_ACCESS = ("user", "password")


@dataclass(frozen=True, slots=True)
class LoadIdentity:
    """Digests of a load's options and inputs.

    Attributes:
        definition: Digest of all options that affect the result.
        inputs: Digest of the files and snapshots; None if a source has no identity.
        is_append: Whether a second load would add the rows again.
    """

    definition: str
    inputs: str | None
    is_append: bool

    @classmethod
    def of(cls, spec: LoadSpec, inputs: LoadInputs) -> LoadIdentity:
        """The identity of a load."""
        digest = None if callable(spec.transform) else _digest_of_inputs(inputs.inputs)
        definition = hashlib.sha256(_line(_definition(spec))).hexdigest()[:16]
        return cls(definition, digest, spec.mode == "append")

    @property
    def load_id(self) -> str | None:
        """The load id of an append, derived from its inputs; None for other loads."""
        if not self.is_append or self.inputs is None:
            return None
        return inputs_load_id(self.definition, self.inputs)


IsCommitted = Callable[[str], bool]
Naming = Callable[[LoadIdentity, IsCommitted], str | None]
"""Chooses a load id."""


def name_load(spec: LoadSpec) -> Naming:
    """The default naming: the id of an append is derived from its inputs.

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
    """The load id that the naming chooses."""
    identity = LoadIdentity.of(spec, inputs)
    return naming(identity, lambda load_id: target.committed(spec, load_id) is not None)


def _definition(spec: LoadSpec) -> dict[str, Any]:
    """All options that affect the result: not the engine, the memory limit or the name."""
    schema = spec.schema
    # Loads without rules keep the ids that they had before there were rules.
    rules = _rules(spec) if spec.rules else {}
    return rules | {
        "mode": spec.mode,
        "schema_mode": spec.schema_mode,
        "transform": None if callable(spec.transform) else spec.transform,
        "schema": None if schema is None else [[each.name, str(each.type)] for each in schema],
        "bad_records": spec.bad_records,
        "merge": {key: str(value) for key, value in spec.merge_options.items()},
        "sources": [_source(source) for source in spec.sources],
    }


def _rules(spec: LoadSpec) -> dict[str, Any]:
    columns = [
        [each.name, each.source, None if each.kind is None else str(each.kind), repr(each.value)]
        for each in spec.select or ()
    ]
    return {"select": None if spec.select is None else columns, "where": spec.where}


def _source(source: SourceSpec) -> dict[str, Any]:
    """The options that affect how a source is read, without its files and secrets."""
    options = {
        key: str(value)
        for key, value in source.options.items()
        if "." not in str(key) and key not in _ACCESS
    }
    return {
        "kind": source.kind,
        "format": source.format,
        "options": options,
        "hive_partitions": source.hive_partitions,
        "where": source.where,
        "columns": None if source.columns is None else list(source.columns),
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


def _line(document: object) -> bytes:
    return json.dumps(document, sort_keys=True).encode() + b"\n"
