"""The options that all writes share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from icestream.commit.outcome.load_id import (
    LOAD_ID_KEY,
    REPLACED_KEY,
    WRITE_IDS_KEY,
    check_load_id,
)
from icestream.errors import InvalidArgumentError
from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget
from icestream.write.schema.schema_plan import SchemaMode, check_mode

_RESERVED_PROPERTIES = ("operation", LOAD_ID_KEY, WRITE_IDS_KEY, REPLACED_KEY)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of one write. Each verb builds them once and passes them on.

    Attributes:
        memory: Maximum number of bytes held.
        schema_mode: What to do if the stream's columns differ from the table's.
        branch: The branch that gets the snapshot; the main branch by default.
        properties: Properties for the snapshot's summary.
        load_id: Identifies the write: a second write with the same id does nothing.
        dry_run: Whether to report what would change, and write and commit nothing.
    """

    memory: int | str | MemoryBudget = DEFAULT_MEMORY
    schema_mode: SchemaMode = "freeze"
    branch: str | None = None
    properties: Mapping[str, str] | None = field(default=None, repr=False)
    load_id: str | None = None
    dry_run: bool = False

    def check(self) -> None:
        """Refuse invalid values before anything is looked up.

        Raises:
            InvalidArgumentError: Naming the argument.
        """
        check_load_id(self.load_id)
        check_mode(self.schema_mode)
        if self.branch == "":
            raise InvalidArgumentError("branch is empty: name a branch, or leave it out for main")
        check_properties(self.properties)


def check_properties(properties: Mapping[str, str] | None) -> None:
    """Refuse snapshot properties that can't be stored.

    Raises:
        InvalidArgumentError: Naming the first of them.
    """
    for key, value in (properties or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidArgumentError(
                f"properties has {key!r}: {value!r}: snapshot properties are strings"
            )
        if key in _RESERVED_PROPERTIES:
            raise InvalidArgumentError(f"properties has {key!r}, which every commit sets itself")
