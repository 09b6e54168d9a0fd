"""A pipeline file describes several loads in YAML: see docs/pipeline-file.md."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass as model_dataclass
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pyiceberg.catalog import Catalog

from icestream.errors import InvalidArgumentError
from icestream.operations.merge.merge_options import MERGE_RULES
from icestream.pipeline.request.checks import Check, CheckModel
from icestream.pipeline.request.load_spec import LOAD_OPTIONS, LoadOptions, LoadSpec, TableLoad
from icestream.pipeline.request.located_yaml import LocatedYaml
from icestream.pipeline.request.source_spec import Sources
from icestream.pipeline.request.validation import (
    CONFIG,
    RequestModel,
    Texts,
    about,
    error_at,
    expect,
    explained,
    locate_unknown_keys,
    truth_of_text,
)

_NAME = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")
_NAME_HINT = "give letters, digits, '.', '-' and '_', 100 at most"
_NOT_COMPARED = ("after", "catalog", "tests")
_Tests = Annotated[tuple[CheckModel, ...], expect("write a list, such as '- not_null: [id]'")]
_ONE_OF: Any = {"oneOf": [{"required": ["source"]}, {"required": ["sources"]}]}


@model_dataclass(
    frozen=True, slots=True, kw_only=True, config=ConfigDict(**CONFIG, json_schema_extra=_ONE_OF)
)
class LoadModel(TableLoad):
    """One load: it reads sources and writes one snapshot of a table."""

    what: ClassVar[str] = "a load"
    source: Annotated[Sources | None, about("What to read, or a list to read together.")] = None
    sources: Annotated[Sources | None, about("The same as source. Give one of the two.")] = None
    after: Annotated[Texts, about("Loads that must finish before this one.")] = ()
    tests: Annotated[_Tests, about("Tests on the table as it would be published.")] = ()

    @model_validator(mode="after")
    def _check_repeats(self) -> LoadModel:
        if (self.source is None) == (self.sources is None):
            raise ValueError("a load needs a source: give one of 'source' and 'sources'")
        names = [test.check.name for test in self.tests]
        for number, name in enumerate(names):
            if name in names[:number]:
                raise error_at(("tests", number), f"two tests have the name {name!r}")
        return self


class PipelineModel(RequestModel):
    """A pipeline: loads that run in order. A load is published only if its tests pass."""

    what = "the pipeline"
    name: Annotated[str, _NAME, expect(_NAME_HINT)] | None = Field(
        None, description="The pipeline's name; the name of the file by default."
    )
    catalog: Annotated[str, expect("give a catalog's name")] | None = Field(
        None, description="The catalog of all loads: its name in PyIceberg's configuration."
    )
    defaults: LoadOptions | None = Field(
        None, description="Options for loads that do not set them; merge options are for merges."
    )
    loads: Annotated[
        dict[Annotated[str, _NAME, expect(_NAME_HINT, name="the name of a load")], LoadModel],
        Field(min_length=1),
        expect("describe one load or more, by name"),
    ] = Field(description="The loads, by name.")

    @model_validator(mode="after")
    def _check_after(self) -> PipelineModel:
        for name, load in self.loads.items():
            others = tuple(each for each in self.loads if each != name)
            path = ("loads", name, "after")
            locate_unknown_keys(f"after of load {name!r}", load.after, others, path)
        return self


@dataclass(frozen=True, slots=True)
class PipelineLoad:
    """One load of a pipeline.

    Attributes:
        name: The load's name.
        spec: The load.
        tests: Tests on its result.
        after: The loads that the file names under `after`.
        fingerprint: Digest of the load's text in the file.
    """

    name: str
    spec: LoadSpec
    tests: tuple[Check, ...] = ()
    after: tuple[str, ...] = ()
    fingerprint: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """A validated pipeline.

    Attributes:
        name: The pipeline's name.
        path: Path of the file.
        loads: The loads, in the order of the file.
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
        """Read and validate a file.

        Args:
            path: Path of the file.
            variables: Values of variables, which override the environment.
            catalog: A catalog to use instead of the catalogs in the file.

        Raises:
            InvalidArgumentError: If the file is not valid. The message names the line.
        """
        file = Path(path)
        text = _text_of(file)
        known = {**os.environ, **(variables or {})}
        document = LocatedYaml.parse(text, str(file), known)
        folder = file.absolute().parent
        with explained(document.error):
            model = PipelineModel.model_validate(document.value, context={"folder": folder})
        loads = []
        for name, load in model.loads.items():
            written = document.value["loads"][name]
            options = _options(document.value, written)
            if catalog is not None:
                options["catalog"] = catalog
            if load.checkpoint is not None:
                options["checkpoint"] = str(folder / load.checkpoint)
            sources = load.source or load.sources or ()
            with explained(document.error, ("loads", name)):
                spec = LoadSpec(name=name, into=load.into, sources=sources, **options)
                spec.check()
            tests = tuple(test.check for test in load.tests)
            plain = {**(document.value.get("defaults") or {}), **written}
            fingerprint = _fingerprint({**plain, "checkpoint": spec.checkpoint})
            loads.append(PipelineLoad(name, spec, tests, load.after, fingerprint))
        return cls(model.name or file.stem, file, tuple(loads))


def _text_of(file: Path) -> str:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InvalidArgumentError(
            f"the pipeline {file} can't be read: {error.strerror or error}"
        ) from error
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidArgumentError(
            f"{file}:{line}: this is not UTF-8 text: save the file as UTF-8"
        ) from error


def _options(pipeline: Mapping[str, Any], load: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a load, including the defaults that apply to it."""
    common = {**(pipeline.get("defaults") or {})}
    if pipeline.get("catalog") is not None:
        common["catalog"] = pipeline["catalog"]
    unused = () if {**common, **load}.get("mode") == "merge" else ("keys", *MERGE_RULES)
    if not isinstance({**common, **load}.get("transform"), str):
        unused = (*unused, "transform_engine")
    options = {key: each for key, each in common.items() if key not in unused} | {**load}
    return {key: each for key, each in options.items() if key in LOAD_OPTIONS and each is not None}


def _fingerprint(written: Mapping[str, Any]) -> str:
    plain = {
        key: truth_of_text(value)
        for key, value in written.items()
        if key not in _NOT_COMPARED and (key, value) != ("checkpoint", None)
    }
    text = json.dumps(plain, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class _FileSchema(GenerateJsonSchema):
    """Generates a JSON Schema in which any value may be a variable such as `${NAME}`."""

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        plain = super().generate_inner(schema)
        if schema["type"] not in ("literal", "bool", "int") and "pattern" not in plain:
            return plain
        return {"anyOf": [plain, {"type": "string", "pattern": r"\$\{.+\}"}]}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def pipeline_schema() -> dict[str, Any]:
    """The JSON Schema of pipeline files, for completion and checks in editors."""
    schema = PipelineModel.model_json_schema(schema_generator=_FileSchema)
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema}
