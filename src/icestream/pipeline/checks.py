"""Tests on the result of a load: what they ask, and what was found.

A test looks at the table as it would be published, all of it. As in SQL, a null is neither equal
nor unequal to anything: `unique` and `accepted_values` pass over nulls, and `not_null` finds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, cast, get_args

from icestream.errors import InvalidArgumentError
from icestream.pipeline.choice import check_keys

CheckKind = Literal["rows", "not_null", "unique", "accepted_values", "sql"]
KINDS: tuple[CheckKind, ...] = get_args(CheckKind)
EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Check:
    """One test.

    Attributes:
        kind: What is tested.
        name: What it is called in messages.
        columns: Of `not_null`, `unique` and `accepted_values`; with dots for fields of structs.
        least: Of `rows`: how many there must be.
        most: Of `rows`: how many there may be.
        values: Of `accepted_values`, as texts.
        sql: Of `sql`: a query over `result` that must return nothing.
    """

    kind: CheckKind
    name: str
    columns: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    values: tuple[str, ...] = ()
    sql: str = ""

    @classmethod
    def parse(cls, told: object) -> Check:
        """Make a test of what the user wrote, such as `{"not_null": ["id"]}`.

        Raises:
            InvalidArgumentError: If it can't be one; says what to write.
        """
        if not isinstance(told, Mapping):
            raise InvalidArgumentError(
                f"a test is {told!r}: write it like 'not_null: [id]'; there are {', '.join(KINDS)}"
            )
        check_keys("a test", told, (*KINDS, "name"))
        kinds = [key for key in told if key != "name"]
        if len(kinds) != 1:
            raise InvalidArgumentError(
                f"a test has {', '.join(kinds) or 'no kind'}: give exactly one of "
                f"{', '.join(KINDS)}, and another test for the others"
            )
        kind = cast(CheckKind, kinds[0])
        check = _PARSERS[kind](told[kind])
        name = told.get("name")
        return check if name is None else _renamed(check, str(name))


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a test found.

    Attributes:
        name: The test.
        kind: What was tested.
        passed: Whether it holds.
        failures: Rows (of `unique`: keys) that it does not hold for; of `rows`: the number of rows.
        text: What was found, in words.
        examples: Some of what it does not hold for.
    """

    name: str
    kind: CheckKind
    passed: bool
    failures: int
    text: str
    examples: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The result as a dictionary that `json.dumps` takes."""
        return asdict(self)


def judge_rows(check: Check, rows: int) -> CheckResult:
    """Whether there are as many rows as there may be."""
    low = check.least is not None and rows < check.least
    high = check.most is not None and rows > check.most
    text = f"{rows:,} rows"
    if low:
        text += f", and there must be at least {check.least:,}"
    if high:
        text += f", and there may be at most {check.most:,}"
    return CheckResult(check.name, check.kind, not (low or high), rows, text)


def judge_nulls(check: Check, nulls: Mapping[str, int]) -> CheckResult:
    """Whether no column has nulls.

    Args:
        check: The test.
        nulls: The number of nulls of each of its columns.
    """
    bad = [f"{nulls[name]:,} in {name!r}" for name in check.columns if nulls[name]]
    total = sum(nulls[name] for name in check.columns)
    text = f"there are nulls: {', '.join(bad)}" if bad else "no nulls"
    return CheckResult(check.name, check.kind, not bad, total, text)


def judge_found(check: Check, count: int, examples: Sequence[str]) -> CheckResult:
    """Whether nothing was found that the test does not hold for."""
    shown = tuple(examples[:EXAMPLES])
    if not count:
        return CheckResult(check.name, check.kind, True, 0, "as it should be")
    such = f", such as {'; '.join(shown)}" if shown else ""
    what = {
        "unique": f"{_counted(count, 'key')} more than once",
        "accepted_values": f"{_counted(count, 'row')} with other values",
        "sql": f"the query returned {_counted(count, 'row')}",
    }[check.kind]
    return CheckResult(check.name, check.kind, False, count, f"{what}{such}", shown)


def shown_row(names: Sequence[str], values: Sequence[object]) -> str:
    """Values of a row, for people to read."""
    return ", ".join(f"{name} = {value!r}" for name, value in zip(names, values, strict=True))


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _renamed(check: Check, name: str) -> Check:
    if not name.strip():
        raise InvalidArgumentError("the name of a test is empty: give one, or leave it out")
    return replace(check, name=name)


def _rows(told: object) -> Check:
    if not isinstance(told, Mapping) or not told:
        raise InvalidArgumentError(f"rows is {told!r}: write it like 'rows: {{min: 1, max: 1000}}'")
    check_keys("rows", told, ("min", "max"))
    least, most = (_count(key, told.get(key)) for key in ("min", "max"))
    if least is not None and most is not None and least > most:
        raise InvalidArgumentError(f"rows has min {least} and max {most}: min must not be above")
    bounds = [
        f"{key} {value}" for key, value in (("min", least), ("max", most)) if value is not None
    ]
    return Check("rows", f"rows {', '.join(bounds)}", least=least, most=most)


def _count(key: str, value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, str) and value.strip().isdigit():  # of a variable
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidArgumentError(f"{key} of rows is {value!r}: give a whole number from 0 on")
    return value


def _named_columns(kind: CheckKind, told: object) -> Check:
    given = [told] if isinstance(told, str) else told
    if (
        not isinstance(given, Sequence)
        or not given
        or not all(isinstance(name, str) and name for name in given)
    ):
        raise InvalidArgumentError(f"{kind} is {told!r}: name columns, as in '{kind}: [id, price]'")
    if len(set(given)) < len(given):
        raise InvalidArgumentError(f"{kind} names a column twice: {', '.join(given)}")
    return Check(kind, f"{kind} {', '.join(given)}", columns=tuple(given))


def _accepted_values(told: object) -> Check:
    if not isinstance(told, Mapping):
        raise InvalidArgumentError(
            f"accepted_values is {told!r}: write it like "
            "'accepted_values: {column: country, values: [DE, FR]}'"
        )
    check_keys("accepted_values", told, ("column", "values"))
    column, values = told.get("column"), told.get("values")
    if not isinstance(column, str) or not column:
        raise InvalidArgumentError(f"column of accepted_values is {column!r}: name a column")
    if isinstance(values, (str, Mapping)) or not isinstance(values, Sequence) or not values:
        raise InvalidArgumentError(f"values of accepted_values is {values!r}: give a list")
    if any(value is None or isinstance(value, (list, Mapping)) for value in values):
        raise InvalidArgumentError(
            "values of accepted_values are texts and numbers; nulls are left to not_null"
        )
    texts = tuple(str(v).lower() if isinstance(v, bool) else str(v) for v in values)
    return Check("accepted_values", f"accepted_values {column}", columns=(column,), values=texts)


def _sql(told: object) -> Check:
    if not isinstance(told, str) or not told.strip():
        raise InvalidArgumentError(
            f"sql is {told!r}: give a query that must return nothing, as in "
            "'SELECT * FROM result WHERE price < 0'"
        )
    text = told.strip().rstrip(";").strip()
    first = text.splitlines()[0]
    return Check("sql", f"sql {first if len(first) <= 60 else first[:57] + '...'}", sql=text)


_PARSERS = {
    "rows": _rows,
    "not_null": lambda told: _named_columns("not_null", told),
    "unique": lambda told: _named_columns("unique", told),
    "accepted_values": _accepted_values,
    "sql": _sql,
}
