"""Filters as text: icestream's parser gives the expressions that PyIceberg's parser gives."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.parser import parse as parse_of_pyiceberg
from pyparsing import ParseException

from icestream.read.filters.parser import parse
from icestream.read.filters.place import FilterTextError

_KEYWORDS = ["and", "or", "in", "is", "between", "like", "true", "null", "nan", "False", "date"]
_PLAIN = ["a", "_b1", "price", "a$b", "orders", "notes", "isle", "timestamp", "x_y_z"]
_WORDS = st.sampled_from([*_KEYWORDS, *_PLAIN])
_QUOTED = st.sampled_from(['"unit price"', '"a\\b"', '""', '"und"', '"größe"', '"a-b"', '"not"'])
_NAMES = st.one_of(_WORDS, _QUOTED)
_COLUMNS = st.one_of(
    _NAMES,
    st.builds(lambda a, gap, b: f"{a}{gap}{b}", _NAMES, st.sampled_from([".", " . "]), _NAMES),
)
_STRINGS = st.text(st.sampled_from("aB'é%_ .;\"(=")).map(lambda t: "'" + t.replace("'", "''") + "'")
_ESCAPED = st.sampled_from([r"'O\'Hara'", r"'a\\'", r"'50\%'", r"'\n'", r"'\x41'"])
_INTEGERS = st.from_regex(r"[+-]?[0-9]{1,20}", fullmatch=True).filter(str.isascii)
_DECIMALS = st.from_regex(r"[+-]?([0-9]{1,9}\.[0-9]{0,9}|\.[0-9]{1,9})", fullmatch=True)
_BOOLEANS = st.sampled_from(["true", "FALSE", "True"])
_LITERALS = st.one_of(_STRINGS, _ESCAPED, _INTEGERS, _DECIMALS, _BOOLEANS)
_OPERATORS = st.sampled_from(["<", "<=", ">", ">=", "=", "==", "!=", "<>"])
_GAP = st.sampled_from(["", " ", "\t", "\n"])
_PATTERNS = st.sampled_from(["'A%'", "'%'", "'A'", "''", r"'5\%%'", r"'5\%'", "'a_c%'", "'O''H%'"])


def _word(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from([text, text.upper(), text.capitalize()])


def _lists() -> st.SearchStrategy[str]:
    kinds = (_STRINGS, _INTEGERS, _DECIMALS, _BOOLEANS)
    listed = [st.lists(kind, min_size=1, max_size=4).map(", ".join) for kind in kinds]
    return st.one_of(listed).map(lambda text: f"({text})")


@st.composite
def _conditions(draw: st.DrawFn) -> str:
    column, gap = draw(_COLUMNS), draw(_GAP)
    negation = draw(st.sampled_from(["", draw(_word("not")) + " "]))
    kind = draw(st.sampled_from(["left", "right", "between", "in", "null", "nan", "like", "true"]))
    if kind == "left":
        return f"{column}{gap}{draw(_OPERATORS)}{gap}{draw(_LITERALS)}"
    if kind == "right":
        return f"{draw(_LITERALS)}{gap}{draw(_OPERATORS)}{gap}{column}"
    if kind == "between":
        ends = f"{draw(_LITERALS)} {draw(_word('and'))} {draw(_LITERALS)}"
        return f"{column} {draw(_word('between'))} {ends}"
    if kind == "in":
        return f"{column} {negation}{draw(_word('in'))}{gap}{draw(_lists())}"
    if kind == "like":
        return f"{column} {negation}{draw(_word('like'))} {draw(_PATTERNS)}"
    return (
        f"{column} {draw(_word('is'))} {negation}{draw(_word('nan' if kind == 'nan' else 'null'))}"
    )


def _larger(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        parts.map(lambda text: f"({text})"),
        st.tuples(_word("not"), parts).map(lambda pair: f"{pair[0]} ({pair[1]})"),
        st.tuples(_word("not"), parts).map(" ".join),
        *(
            st.tuples(st.lists(parts, min_size=2, max_size=4), _word(word)).map(
                lambda pair: f" {pair[1]} ".join(pair[0])
            )
            for word in ("and", "or")
        ),
    )


_FILTERS = st.recursive(_conditions(), _larger, max_leaves=8)


@st.composite
def _damaged(draw: st.DrawFn) -> str:
    """A filter that lacks some characters, or has others in their place."""
    text = draw(_FILTERS)
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 4)))
    return (
        text[:start]
        + draw(st.sampled_from(["", "'", '"', "(", ")", "x", " ", "=", "1"]))
        + text[end:]
    )


@settings(max_examples=400, deadline=None)
@given(_FILTERS)
def test_every_filter_of_pyiceberg_gives_the_same_expression(text: str) -> None:
    try:
        expected = parse_of_pyiceberg(text)
    except ParseException:  # names such as `false.a`; icestream reads more of them
        return
    assert parse(text).expression == expected


@settings(max_examples=400, deadline=None)
@given(st.one_of(_damaged(), st.text(max_size=40)))
def test_any_text_is_a_filter_or_a_mistake_with_a_place(text: str) -> None:
    mistake = _mistake_in(text)
    if mistake is None:
        assert isinstance(parse(text).expression, BooleanExpression)
    else:
        assert str(mistake)
        assert 0 <= mistake.position <= len(text)


def _mistake_in(text: str) -> FilterTextError | None:
    try:
        parse(text)
    except FilterTextError as error:
        return error
    return None


def test_the_words_true_and_false_alone_are_conditions() -> None:
    for text in ("true", "False", "(TRUE)"):
        assert parse(text).expression == parse_of_pyiceberg(text)
