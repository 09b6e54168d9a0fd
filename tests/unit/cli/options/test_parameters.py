"""Value types of options."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click
import pytest

from icestream.cli.options.parameters import Age, Columns, Moment, Property, add_options

_NOVEMBER = datetime(2026, 11, 16, tzinfo=UTC)


def _in_words(value: object) -> str:
    """The same in every process, as parallel tests need it."""
    return type(value).__name__ if isinstance(value, click.ParamType) else str(value)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Columns(), "id, price", ["id", "price"]),
        (Moment(), "2026-11-16", _NOVEMBER),
        (Moment(), "2026-11-16T01:00:00+01:00", _NOVEMBER),
        (Moment(), "1700000000000", 1_700_000_000_000),
        (Age(), "3d", timedelta(days=3)),
        (Age(), "1.5h", timedelta(minutes=90)),
        (Age(), "90", timedelta(seconds=90)),
        (Age(), "2026-11-16", _NOVEMBER),
        (Property(), "team=a=b", ("team", "a=b")),
        (Property(), "team=", ("team", "")),
    ],
    ids=_in_words,
)
def test_texts_become_values_and_values_stay(kind: Any, text: str, value: object) -> None:
    assert kind.convert(text, None, None) == value
    assert kind.convert(value, None, None) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Columns(), "id,,price"),
        (Moment(), "yesterday"),
        (Age(), "3 years"),
        (Property(), "team"),
        (Property(), "=sales"),
    ],
    ids=_in_words,
)
def test_other_texts_are_refused_with_an_example(kind: Any, text: str) -> None:
    with pytest.raises(click.BadParameter, match="write"):
        kind.convert(text, None, None)


def test_the_help_shows_options_in_the_order_in_which_they_are_given() -> None:
    def function() -> None: ...

    command = click.command()(
        add_options(function, [click.option("--first"), click.option("--second")])
    )
    assert [option.name for option in command.params] == ["first", "second"]
