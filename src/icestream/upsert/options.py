"""What the caller of a merge asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pyiceberg.expressions import BooleanExpression

from icestream.commit.removal import merges_on_read
from icestream.errors import InvalidArgumentError, UnsupportedFeatureError
from icestream.write.schema import SchemaMode
from icestream.write.target import WriteTarget

WhenMatched = Literal["update", "ignore", "delete"]
WhenNotMatched = Literal["insert", "ignore"]
OnDuplicate = Literal["error", "last"]
NullKeys = Literal["error", "insert"]
WriteMode = Literal["copy-on-write", "merge-on-read"]
Isolation = Literal["serializable", "snapshot"]

_MODE_PROPERTY = "write.merge.mode"
_ISOLATION_PROPERTY = "write.merge.isolation-level"


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """The arguments of `merge` that say what becomes of rows; described there."""

    on: Sequence[str] | str | None = None
    when_matched: WhenMatched = "update"
    when_not_matched: WhenNotMatched = "insert"
    update_columns: Sequence[str] | None = None
    delete_when: str | BooleanExpression | None = None
    on_duplicate: OnDuplicate = "error"
    last_by: str | None = None
    null_keys: NullKeys = "error"
    skip_unchanged: bool = True
    write_mode: WriteMode | None = None
    isolation: Isolation | None = None
    schema_mode: SchemaMode = "freeze"

    def check(self) -> None:
        """Refuse what is no option, or does not go together.

        Raises:
            InvalidArgumentError: Says which, and what there is instead.
        """
        for name, kind in (
            ("when_matched", WhenMatched),
            ("when_not_matched", WhenNotMatched),
            ("on_duplicate", OnDuplicate),
            ("null_keys", NullKeys),
        ):
            _check(name, getattr(self, name), kind)
        for name, kind in (("write_mode", WriteMode), ("isolation", Isolation)):
            if getattr(self, name) is not None:
                _check(name, getattr(self, name), kind)
        if self.last_by is not None and self.on_duplicate != "last":
            raise InvalidArgumentError(
                "last_by says which of two rows counts: give it together with on_duplicate='last'"
            )
        if self.update_columns is not None and self.when_matched != "update":
            raise InvalidArgumentError(
                f"update_columns with when_matched={self.when_matched!r}: nothing is updated; "
                "leave one of them out"
            )
        if isinstance(self.update_columns, str) or self.update_columns == []:
            raise InvalidArgumentError(
                f"update_columns is {self.update_columns!r}: give a list of names, or leave it out "
                "for all columns of the stream"
            )

    def merges_on_read(self, target: WriteTarget) -> bool:
        """Whether changed rows are deleted by position; the table says so unless the caller does.

        Raises:
            UnsupportedFeatureError: If the table has format version 1, which has no deletes.
        """
        if self.write_mode is None:
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
        """Whether rows that others add meanwhile, with keys that might match, are a conflict."""
        level = self.isolation or target.properties.get(_ISOLATION_PROPERTY, "serializable")
        _check(f"the table property {_ISOLATION_PROPERTY}", level, Isolation)
        return level == "serializable"


def _check(name: str, value: object, kind: Any) -> None:
    allowed = get_args(kind)
    if value not in allowed:
        known = " or ".join(repr(each) for each in allowed)
        raise InvalidArgumentError(f"{name} is {value!r}: give {known}")
