"""What to say about text that the parser refuses: what is wrong, and what to write."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from icestream.read.filters.place import FilterTextError
from icestream.read.filters.tokens import Token

_CONDITION = "write a condition such as price > 10 or country in ('NO', 'SE')"
_OPERATORS = ("in", "between", "like", "is", "not")
_OTHER_SPELLINGS = {
    "=<": "<=",
    "=>": ">=",
    "===": "=",
    "<=>": "=",
    "&&": "and",
    "||": "or",
    "!": "not",
}
# Operators of SQL and of data frames that Iceberg has no expression for.
_REFUSED = {
    "ilike": "like 'A%', which tests how a text begins, with the case of its letters",
    "rlike": "like 'A%', which tests how a text begins",
    "regexp": "like 'A%', which tests how a text begins",
    "similar": "like 'A%', which tests how a text begins",
    "glob": "like 'A%', which tests how a text begins",
    "contains": "like 'A%', which tests how a text begins",
    "startswith": "like 'A%'",
    "starts_with": "like 'A%'",
    "isnull": "is null",
    "notnull": "is not null",
    "exists": "in ('NO', 'SE') with constants",
    "any": "in ('NO', 'SE') with constants",
}
_QUERY = "Use a query for that, such as DuckDB over icestream.scan()"
_DATE = re.compile(r"\d{4}-\d\d?-\d|\d\d?/\d\d?/\d{4}")
_QUOTED_DATE = "write a date in single quotes, such as '2024-01-31'"
_NO_CALCULATION = "a filter can't calculate: compare a column with a constant"


def _shown(token: Token) -> str:
    if token.kind == "end":
        return "the end"
    return repr(token.text) if token.kind == "word" else token.text


def empty(token: Token) -> FilterTextError:
    """There is nothing in the text."""
    return FilterTextError(f"it is empty: {_CONDITION}", token.position)


def after_condition(tokens: Sequence[Token], at: int) -> FilterTextError:
    """A condition is followed by something other than `and`, `or` or the end."""
    token = tokens[at]
    spelling = _OTHER_SPELLINGS.get(token.text)
    if spelling in ("and", "or"):
        text = f"write {spelling!r} instead of {token.text}"
    elif token.text == ")":
        text = "this ) closes nothing: remove it, or write ( before the condition"
    elif token.text == ";":
        text = "remove the ;"
    elif _calculates(token):
        dated = _DATE.match("".join(each.text for each in tokens[max(0, at - 1) : at + 4]))
        text = _QUOTED_DATE if dated else _NO_CALCULATION
    elif token.kind == "operator":
        text = f"{token.text} follows a complete condition: compare one column with one constant"
    else:
        near = difflib.get_close_matches(token.word, ("and", "or"), n=1)
        hint = f": did you mean {near[0]!r}?" if near else ""
        text = f"expected 'and' or 'or' after the condition, and found {_shown(token)}{hint}"
    return FilterTextError(text, token.position)


def not_closed(tokens: Sequence[Token], at: int, opening: Token) -> FilterTextError:
    """A parenthesis is open."""
    if tokens[at].kind != "end":
        return after_condition(tokens, at)
    return FilterTextError("this ( is not closed: write ) after the conditions", opening.position)


def no_condition(tokens: Sequence[Token], at: int) -> FilterTextError:
    """A condition has to begin here."""
    token = tokens[at]
    if token.text == "!":
        text = "write 'not' instead of !"
    elif token.kind == "end":
        text = f"it ends where a condition is missing: {_CONDITION}"
    else:
        text = f"a condition can't begin with {_shown(token)}: {_CONDITION}"
    return FilterTextError(text, token.position)


def no_operator(tokens: Sequence[Token], at: int, column: str, negated: bool) -> FilterTextError:
    """The name of a column is followed by something that is not an operator."""
    token = tokens[at]
    if token.text == "(":
        return FilterTextError(
            f"a filter can't call a function such as {column}(): compare the column itself with a "
            "constant",
            tokens[at - 1].position,
        )
    if column.lower() in ("where", "select", "filter") and token.kind in ("word", "other"):
        text = f"leave {column!r} out: write only the condition, such as price > 10"
        return FilterTextError(text, tokens[at - 1].position)
    if token.word in _REFUSED:
        return _refused(token)
    if token.text == "-" or (token.kind == "number" and token.text[0] == "-"):
        text = f'{_NO_CALCULATION}. A name with a minus sign needs quotes: "unit-price"'
    elif _calculates(token):
        text = _NO_CALCULATION
    elif token.kind == "end" or token.word in ("and", "or") or token.text == ")":
        text = (
            f"{column!r} is not compared with anything: write {column} = true, "
            f"{column} is not null or {column} > 10"
        )
    else:
        near = difflib.get_close_matches(token.word, _OPERATORS, n=1)
        if negated and token.word == "null":
            near = ["is not null"]
        hint = f". Did you mean {near[0]!r}?" if near else ""
        options = "in, between or like" if negated else "=, !=, <, <=, >, >=, in, between, like, is"
        text = f"expected one of {options}, and found {_shown(token)}{hint}"
    return FilterTextError(text, token.position)


def _refused(token: Token) -> FilterTextError:
    text = f"Iceberg's filters have no {token.text}: write {_REFUSED[token.word]}"
    return FilterTextError(f"{text}. {_QUERY}", token.position)


def _calculates(token: Token) -> bool:
    return token.text in tuple("+-*/%|&^~") or (token.kind == "number" and token.text[0] in "+-")


def no_field(token: Token, path: str) -> FilterTextError:
    """A dot is not followed by a name."""
    text = f"the name of a field is missing after '{path}.': quote a name that is not a plain word"
    return FilterTextError(text, token.position)


def no_comparison(token: Token) -> FilterTextError:
    """An operator that looks like one of another language."""
    spelling = _OTHER_SPELLINGS.get(token.text, "=")
    if spelling in ("and", "or", "not"):
        text = f"{token.text} can't follow a name: compare the column first, as in price > 10"
    else:
        text = f"write {spelling} instead of {token.text}"
    return FilterTextError(text, token.position)


def constant_first(tokens: Sequence[Token], at: int, position: int) -> FilterTextError:
    """A constant is not followed by a comparison."""
    token = tokens[at]
    if _calculates(token):
        return FilterTextError(_NO_CALCULATION, token.position)
    if token.kind == "end" or token.word or token.text in ("(", ")", ","):
        return FilterTextError(
            f"a constant is not a condition: {_CONDITION}, with the column on the left", position
        )
    text = f"expected =, !=, <, <=, > or >= after the constant, and found {_shown(token)}"
    return FilterTextError(text, token.position)


def no_column(tokens: Sequence[Token], at: int) -> FilterTextError:
    """A constant is compared with something that is not a column."""
    token = tokens[at]
    text = f"expected the name of a column, and found {_shown(token)}: {_CONDITION}"
    return FilterTextError(text, token.position)


def after_is(token: Token) -> FilterTextError:
    """`is` is followed by something other than null or nan."""
    if token.word in ("true", "false"):
        text = f"write = {token.word} instead of is {token.word}"
    else:
        text = f"expected null, not null, nan or not nan after 'is', and found {_shown(token)}"
    return FilterTextError(text, token.position)


def no_list(token: Token) -> FilterTextError:
    """`in` is not followed by a parenthesis."""
    text = f"expected ( after 'in', and found {_shown(token)}: write in ('NO', 'SE')"
    return FilterTextError(text, token.position)


def in_list(token: Token) -> FilterTextError:
    """A list of constants does not go on with a comma or a parenthesis."""
    problem = "it ends" if token.kind == "end" else f"{_shown(token)} follows"
    text = f"{problem} inside the list: separate constants by commas, and write ) at its end"
    return FilterTextError(text, token.position)


def no_upper_end(token: Token) -> FilterTextError:
    """`between` lacks its second constant."""
    text = f"expected 'and', and found {_shown(token)}: write between 10 and 20"
    return FilterTextError(text, token.position)


def no_pattern(token: Token) -> FilterTextError:
    """`like` is not followed by text."""
    text = f"expected text in single quotes after 'like', and found {_shown(token)}"
    return FilterTextError(f"{text}: write like 'A%'", token.position)


def pattern(token: Token) -> FilterTextError:
    """A pattern that is not the beginning of a text."""
    text = "Iceberg's like tests only how a text begins: % may only be the last character"
    return FilterTextError(f"{text}, not as in {token.text}. {_QUERY}", token.position)


def no_date(token: Token) -> FilterTextError:
    """`date` or `timestamp` is followed by other text."""
    text = f"{token.text} is not a date: write '2024-01-31' or '2024-01-31 10:00:00'"
    return FilterTextError(text, token.position)


def too_long(token: Token) -> FilterTextError:
    """A number with too many digits."""
    return FilterTextError("this number has too many digits", token.position)


def no_constant(tokens: Sequence[Token], at: int) -> FilterTextError:
    """A constant has to be here."""
    token = tokens[at]
    after = tokens[min(at + 1, len(tokens) - 1)]
    if token.kind == "end":
        text = "it ends where a constant is missing: write a number, or text such as 'NO'"
    elif token.word == "null":
        text = "a comparison with null is never true: write is null or is not null"
    elif token.word == "nan":
        text = "a comparison with NaN is never true: write is nan or is not nan"
    elif token.word == "select":
        text = f"a filter can't contain a query: list the constants, as in in (1, 2). {_QUERY}"
    elif token.kind == "quoted":
        plain = "'" + token.name.replace("'", "''") + "'"
        text = f"{token.text} is the name of a column: write text in single quotes, {plain}"
    elif token.kind == "word" and after.text == "(":
        text = f"a filter can't call a function such as {token.text}(): write the constant itself"
    elif token.kind == "word":
        text = (
            f"{token.text!r} is not a constant: write text in single quotes, '{token.text}'. A "
            "filter can't compare two columns"
        )
    elif token.text == ")":
        text = "a constant is missing before ): list at least one, and end no list with a comma"
    else:
        text = f"expected a number or text in single quotes, and found {_shown(token)}"
    return FilterTextError(text, token.position)
