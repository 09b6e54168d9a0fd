"""Each mistake in the text of a filter gets one line: what is wrong, and what to write."""

from __future__ import annotations

import pytest

from icestream.read.filters.parser import parse
from icestream.read.filters.place import FilterTextError


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", 0, "it is empty: write a condition such as price > 10"),
        ("price >", 7, "it ends where a constant is missing"),
        ("a = 1 and", 9, "it ends where a condition is missing"),
        ("a between 1", 11, "write between 10 and 20"),
        ("((a = 1)", 0, "is not closed"),
        ("(a = 1 b = 2)", 7, "expected 'and' or 'or' after the condition, and found 'b'"),
        ("a = 1)", 5, "closes nothing"),
        ("a = 1 annd b = 2", 6, "did you mean 'and'?"),
        ("a = 1;", 5, "remove the ;"),
        ("a = 1 && b = 2", 6, "write 'and' instead of &&"),
        ("a = 1 || b = 2", 6, "write 'or' instead of ||"),
        ("a && b", 2, "compare the column first"),
        ("!a = 1", 0, "write 'not' instead of !"),
        ("a => 1", 2, "write >= instead of =>"),
        ("a === 1", 2, "write = instead of ==="),
        ("1 < a < 2", 6, "compare one column with one constant"),
        ("a > 2024-01-31", 8, "write a date in single quotes"),
        ("a > 31/01/2024", 6, "write a date in single quotes"),
        ("a * 2 > 1", 2, "can't calculate"),
        ("a = 1 + 1", 6, "can't calculate"),
        ("1 + a > 2", 2, "can't calculate"),
        ("unit-price > 1", 4, 'needs quotes: "unit-price"'),
        ("lower(a) = 'x'", 0, "can't call a function such as lower()"),
        ("a > now()", 4, "can't call a function such as now()"),
        ("a = b", 4, "write text in single quotes, 'b'. A filter can't compare two columns"),
        ('a = "NO"', 4, "write text in single quotes, 'NO'"),
        ("a = null", 4, "write is null or is not null"),
        ("a != NaN", 5, "write is nan or is not nan"),
        ("a is 5", 5, "expected null, not null, nan or not nan after 'is'"),
        ("a is true", 5, "write = true instead of is true"),
        ("a not null", 6, "Did you mean 'is not null'?"),
        ("a not 5", 6, "expected one of in, between or like, and found 5"),
        ("a betwen 1 and 2", 2, "Did you mean 'between'?"),
        ("paid", 4, "write paid = true"),
        ("(paid) and a = 1", 5, "'paid' is not compared with anything"),
        ("where a = 1", 0, "leave 'where' out"),
        ("select * from t", 0, "leave 'select' out"),
        ("a in 1, 2", 5, "write in ('NO', 'SE')"),
        ("a in ()", 6, "list at least one"),
        ("a in (1 2)", 8, "separate constants by commas"),
        ("a in (1, 2", 10, "write ) at its end"),
        ("a in (select b from c)", 6, "can't contain a query"),
        ("a like 5", 7, "expected text in single quotes after 'like', and found 5"),
        ("a like '%x'", 7, "% may only be the last character, not as in '%x'"),
        ("a like 'x%y%'", 7, "tests only how a text begins"),
        ("a ilike 'x%'", 2, "Iceberg's filters have no ilike: write like 'A%'"),
        ("a contains 'x'", 2, "Iceberg's filters have no contains"),
        ("a. = 1", 3, "the name of a field is missing after 'a.'"),
        ("1 = 2", 4, "expected the name of a column, and found 2"),
        ("'x'", 0, "a constant is not a condition"),
        ("'x' like a", 0, "a constant is not a condition"),
        ("d = date 'soon'", 9, "write '2024-01-31'"),
        ("n = 1e9999", 4, "too many digits"),
        ("(" * 200 + "a = 1", 100, "nested more than 100 deep"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, position: int, message: str) -> None:
    with pytest.raises(FilterTextError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert caught.value.position == position
    assert len(str(caught.value)) < 220
