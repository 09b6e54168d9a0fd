"""What the caller of `orphans` says about other tables in the same folders."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass

from icestream.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Sharing:
    """What the caller says, checked.

    Attributes:
        keeps_others: Whether files of other tables are kept; otherwise their presence is an error.
        dropped: Ids of tables that are dropped.
        only_catalog: Whether no other catalog has this table.
    """

    keeps_others: bool
    dropped: frozenset[str]
    only_catalog: bool


def sharing_of(
    other_tables: str, dropped: Collection[str], only_catalog: bool, own_uuid: str
) -> Sharing:
    """Check what the caller says.

    Raises:
        InvalidArgumentError: If it makes no sense.
    """
    if other_tables not in ("refuse", "keep"):
        raise InvalidArgumentError(f"other_tables is {other_tables!r}: give 'refuse' or 'keep'")
    if isinstance(dropped, str):
        raise InvalidArgumentError(f"dropped is {dropped!r}: give a list of table ids")
    ids = set()
    for each in dropped:
        try:
            ids.add(str(uuid.UUID(str(each))))
        except ValueError:
            raise InvalidArgumentError(
                f"dropped names {each!r}, which is not a table's id: give ids such as {own_uuid}"
            ) from None
    if own_uuid in ids:
        raise InvalidArgumentError(
            f"dropped names {own_uuid}, the id of the table itself: pass only_catalog=True if no "
            "other catalog has it"
        )
    if not isinstance(only_catalog, bool):
        raise InvalidArgumentError(f"only_catalog is {only_catalog!r}: give True or False")
    return Sharing(other_tables == "keep", frozenset(ids), only_catalog)
