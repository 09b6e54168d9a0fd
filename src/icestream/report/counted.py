"""Numbers with their nouns, for messages and reports."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Format a number with its noun, in the singular for 1: `1 row`, `2,000 rows`.

    Args:
        count: The number.
        noun: The noun in the singular, such as `"row"`.
        plural: The noun in the plural, if an `s` at the end is not enough.
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
