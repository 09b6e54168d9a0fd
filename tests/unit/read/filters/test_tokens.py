from __future__ import annotations

import pytest

from icestream.read.filters.place import FilterTextError
from icestream.read.filters.tokens import tokens_of


def test_a_filter_is_cut_into_tokens_with_their_places() -> None:
    tokens = tokens_of("a.b >= -1.5 AND (\"c d\" = 'x y')  ")
    assert [(token.kind, token.text, token.position) for token in tokens] == [
        ("word", "a", 0),
        ("mark", ".", 1),
        ("word", "b", 2),
        ("operator", ">=", 4),
        ("number", "-1.5", 7),
        ("word", "AND", 12),
        ("mark", "(", 16),
        ("quoted", '"c d"', 17),
        ("operator", "=", 23),
        ("string", "'x y'", 25),
        ("mark", ")", 30),
        ("end", "", 31),
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'O''Hara'", "O'Hara"),
        (r"'O\'Hara'", r"O\'Hara"),  # as in PyIceberg, which keeps the backslash
        (r"'C:\'", "C:\\"),
        ("''", ""),
    ],
)
def test_a_string_may_contain_quotes_and_backslashes(text: str, value: str) -> None:
    assert [token.string for token in tokens_of(text)[:-1]] == [value]


@pytest.mark.parametrize(
    ("text", "name"),
    [('"a ""b"""', 'a "b"'), ('"a \\"b\\""', 'a "b"'), ('`a ``b`` "`', 'a `b` "'), ("Ab", "Ab")],
)
def test_a_name_may_contain_quotes(text: str, name: str) -> None:
    assert [token.name for token in tokens_of(text)[:-1]] == [name]


@pytest.mark.parametrize(("text", "position"), [("a = 'x", 4), ('b = 1 and "c', 10), ("`", 0)])
def test_a_quote_that_is_not_closed_is_refused(text: str, position: int) -> None:
    with pytest.raises(FilterTextError, match="is not closed") as caught:
        tokens_of(text)
    assert caught.value.position == position
