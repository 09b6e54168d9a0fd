"""The options of a merge: the only definition of their names, values and descriptions.

This module imports neither PyArrow nor PyIceberg, so the command line shows its help quickly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from icestream.errors import InvalidArgumentError, UnsupportedFeatureError

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

    from icestream.write.schema.schema_plan import SchemaMode
    from icestream.write.target import WriteTarget

WhenMatched = Literal["update", "ignore", "delete"]
WhenNotMatched = Literal["insert", "ignore"]
OnDuplicate = Literal["error", "last"]
NullKeys = Literal["error", "insert"]
WriteMode = Literal["copy-on-write", "merge-on-read"]
Isolation = Literal["serializable", "snapshot"]

_MODE_PROPERTY = "write.merge.mode"
_ISOLATION_PROPERTY = "write.merge.isolation-level"


def _about(description: str, **schema: Any) -> dict[str, Any]:
    return {"description": f"Merge: {description}", **schema}


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRules:
    """What a merge does with rows: the options that `merge`, `load` and pipeline files share.

    The command line and the pipeline file's JSON Schema show these descriptions.
    """

    when_matched: WhenMatched = field(
        default="update", metadata=_about("what to do with matching table rows.")
    )
    when_not_matched: WhenNotMatched = field(
        default="insert", metadata=_about("what to do with source rows that match no table row.")
    )
    update_columns: Sequence[str] | None = field(
        default=None, metadata=_about("the columns that an update sets; all columns by default.")
    )
    delete_when: Any = field(
        default=None,
        metadata=_about(
            "source rows that match this filter, such as op = 'D', delete table rows by key.",
            json_schema_extra={"type": "string"},
        ),
    )
    on_duplicate: OnDuplicate = field(
        default="error", metadata=_about("what to do if source rows have the same key.")
    )
    last_by: str | None = field(
        default=None, metadata=_about("the column that decides which duplicate is the last.")
    )
    null_keys: NullKeys = field(
        default="error", metadata=_about("what to do with source rows that have a null key.")
    )
    skip_unchanged: bool = field(
        default=True, metadata=_about("do not rewrite rows that would not change.", strict=True)
    )
    write_mode: WriteMode | None = field(
        default=None, metadata=_about("how to store changes; write.merge.mode by default.")
    )
    isolation: Isolation | None = field(
        default=None,
        metadata=_about("which commits conflict; write.merge.isolation-level by default."),
    )


MERGE_RULES = tuple(each.name for each in fields(MergeRules))


def choices_of(rule: str) -> tuple[str, ...]:
    """The allowed words for one of `MERGE_RULES`; empty if it takes other values."""
    hint = get_type_hints(MergeRules)[rule]
    literals = [each for each in (hint, *get_args(hint)) if get_origin(each) is Literal]
    return get_args(literals[0]) if literals else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOptions(MergeRules):
    """The arguments of `icestream.merge` that decide what happens to rows."""

    on: Sequence[str] | str | None = None
    delete_when: str | BooleanExpression | None = None
    schema_mode: SchemaMode = "freeze"

    def check(self) -> None:
        """Refuse unknown words and incompatible options.

        Raises:
            InvalidArgumentError: Naming the option, and what to give instead.
        """
        for rule in fields(MergeRules):
            words, value = choices_of(rule.name), getattr(self, rule.name)
            if words and value != rule.default:
                _check(rule.name, value, words)
        if self.last_by is not None and self.on_duplicate != "last":
            raise InvalidArgumentError(
                "last_by decides which of two rows is used: give it together with "
                "on_duplicate='last'"
            )
        if self.update_columns is not None and self.when_matched != "update":
            raise InvalidArgumentError(
                f"update_columns has no effect with when_matched={self.when_matched!r}: leave one "
                "of them out"
            )
        if isinstance(self.update_columns, str) or self.update_columns == []:
            raise InvalidArgumentError(
                f"update_columns is {self.update_columns!r}: give a list of names, or leave it out "
                "for all columns of the stream"
            )

    def merges_on_read(self, target: WriteTarget) -> bool:
        """Whether the caller or else the table selects merge-on-read.

        Raises:
            UnsupportedFeatureError: If the table has format version 1, which has no delete files.
        """
        if self.write_mode is None:
            from icestream.operations.row_changes import merges_on_read

            return merges_on_read(target, _MODE_PROPERTY)
        if self.write_mode == "copy-on-write":
            return False
        if target.metadata.format_version < 2:
            raise UnsupportedFeatureError(
                f"{target.table} has format version 1, which has no delete files: use "
                "write_mode='copy-on-write', or upgrade the table to format-version 2"
            )
        return True

    def is_serializable(self, target: WriteTarget) -> bool:
        """Whether concurrently added rows conflict if their keys might match."""
        level = self.isolation or target.properties.get(_ISOLATION_PROPERTY, "serializable")
        _check(f"the table property {_ISOLATION_PROPERTY}", level, get_args(Isolation))
        return level == "serializable"


def _check(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        known = " or ".join(repr(each) for each in allowed)
        raise InvalidArgumentError(f"{name} is {value!r}: give {known}")
