"""Tests on the result of a load, and their results.

A test reads the whole table as it would be published. As in SQL, a null is neither equal nor
unequal to another value: `unique` and `accepted_values` ignore nulls, and `not_null` finds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, StrictInt, model_validator

from icestream.pipeline.request.validation import (
    RequestModel,
    Text,
    Texts,
    expect,
    explained,
)
from icestream.report.counted import counted

CheckKind = Literal["rows", "not_null", "unique", "accepted_values", "sql"]
KINDS: tuple[CheckKind, ...] = get_args(CheckKind)
EXAMPLES = 5
_SQL_HINT = "give a query that must return no rows, as in 'SELECT * FROM result WHERE price < 0'"


@dataclass(frozen=True, slots=True)
class Check:
    """One test.

    Attributes:
        kind: The kind of test.
        name: The test's name in messages.
        columns: Column names, for `not_null`, `unique` and `accepted_values`. Dots lead to
            fields of structs.
        least: Minimum number of rows, for `rows`.
        most: Maximum number of rows, for `rows`.
        values: Accepted values as text, for `accepted_values`.
        sql: A query over `result` that must return no rows, for `sql`.
    """

    kind: CheckKind
    name: str
    columns: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    values: tuple[str, ...] = ()
    sql: str = ""

    @classmethod
    def parse(cls, value: object) -> Check:
        """Parse a test, such as `{"not_null": ["id"]}`.

        Raises:
            InvalidArgumentError: If the value is not a test. The message says what to write.
        """
        with explained():
            return CheckModel.model_validate(value).check


def _without_repeats(columns: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(columns)) < len(columns):
        raise ValueError(f"a column is named twice: {', '.join(columns)}")
    return columns


def _text_of_value(value: object) -> str:
    if value is None or isinstance(value, (list, Mapping)):
        raise ValueError("values of accepted_values are texts and numbers: use not_null for nulls")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number_of_text(value: object) -> object:
    """Convert digits to a number: the values of variables are text."""
    return int(value) if isinstance(value, str) and value.strip().isdigit() else value


_Count = Annotated[
    StrictInt,
    Field(ge=0),
    BeforeValidator(_number_of_text),
    expect("give a whole number from 0 on"),
]
_Columns = Annotated[
    Texts,
    Field(min_length=1),
    AfterValidator(_without_repeats),
    expect("name columns, as in [id, price]"),
]
_Value = Annotated[
    str, BeforeValidator(_text_of_value, json_schema_input_type=str | bool | int | float)
]


class RowsModel(RequestModel):
    """How many rows the table must have."""

    what = "rows"
    hint = "write it like 'rows: {min: 1, max: 1000}'"
    min: _Count | None = Field(None, description="Minimum number of rows.")
    max: _Count | None = Field(None, description="Maximum number of rows.")

    @model_validator(mode="after")
    def _check_bounds(self) -> RowsModel:
        if self.min is None and self.max is None:
            raise ValueError(f"rows has no bounds: {self.hint}")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(
                f"rows has min {self.min} and max {self.max}: min must not be greater than max"
            )
        return self


class AcceptedValuesModel(RequestModel):
    """Which values a column may have. Nulls are allowed."""

    what = "accepted_values"
    hint = "write it like 'accepted_values: {column: country, values: [DE, FR]}'"
    column: Text = Field(description="The column.")
    values: tuple[_Value, ...] = Field(min_length=1, description="The values that it may have.")


class CheckModel(RequestModel):
    """A test on the table as it would be published. Give exactly one kind of test."""

    what = "a test"
    hint = f"write it like 'not_null: [id]'; the tests are {', '.join(KINDS)}"
    name: Annotated[Text, BeforeValidator(str)] | None = Field(
        None, description="The test's name in messages."
    )
    rows: RowsModel | None = Field(None, description="The table has this many rows.")
    not_null: _Columns | None = Field(None, description="These columns have no nulls.")
    unique: _Columns | None = Field(None, description="No two rows have the same key.")
    accepted_values: AcceptedValuesModel | None = Field(
        None, description="A column has no other values than these."
    )
    sql: Annotated[str, Field(pattern=r"[^\s;]"), expect(_SQL_HINT)] | None = Field(
        None, description="A query over `result` that must return no rows."
    )

    @model_validator(mode="after")
    def _check_kinds(self) -> CheckModel:
        kinds = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            raise ValueError(
                f"a test has {', '.join(kinds) or 'no kind'}: give exactly one of "
                f"{', '.join(KINDS)}, and write another test for the others"
            )
        return self

    @property
    def check(self) -> Check:
        """The test."""
        check = self._unnamed()
        return check if self.name is None else replace(check, name=self.name)

    def _unnamed(self) -> Check:
        if self.rows is not None:
            bounds = ", ".join(f"{key} {value}" for key, value in self.rows if value is not None)
            return Check("rows", f"rows {bounds}", least=self.rows.min, most=self.rows.max)
        if self.accepted_values is not None:
            column, values = self.accepted_values.column, self.accepted_values.values
            name = f"accepted_values {column}"
            return Check("accepted_values", name, columns=(column,), values=values)
        if self.sql is not None:
            text = self.sql.strip().rstrip(";").strip()
            first = text.splitlines()[0]
            name = f"sql {first if len(first) <= 60 else first[:57] + '...'}"
            return Check("sql", name, sql=text)
        kind: CheckKind = "unique" if self.unique else "not_null"
        columns = self.unique or self.not_null or ()
        return Check(kind, f"{kind} {', '.join(columns)}", columns=columns)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a test.

    Attributes:
        name: The test's name.
        kind: The kind of test.
        passed: Whether the test passed.
        failures: Number of rows that fail the test; for `unique`, of keys; for `rows`, of all rows.
        text: A description of the result.
        examples: Some of the values that fail the test.
    """

    name: str
    kind: CheckKind
    passed: bool
    failures: int
    text: str
    examples: tuple[str, ...] = ()


def judge_rows(check: Check, rows: int) -> CheckResult:
    """The result of a `rows` test."""
    low = check.least is not None and rows < check.least
    high = check.most is not None and rows > check.most
    text = counted(rows, "row")
    if low:
        text += f", and there must be at least {check.least:,}"
    if high:
        text += f", and there may be at most {check.most:,}"
    return CheckResult(check.name, check.kind, not (low or high), rows, text)


def judge_nulls(check: Check, nulls: Mapping[str, int]) -> CheckResult:
    """The result of a `not_null` test.

    Args:
        check: The test.
        nulls: Number of nulls in each of its columns.
    """
    bad = [f"{nulls[name]:,} in {name!r}" for name in check.columns if nulls[name]]
    total = sum(nulls[name] for name in check.columns)
    text = f"there are nulls: {', '.join(bad)}" if bad else "no nulls"
    return CheckResult(check.name, check.kind, not bad, total, text)


def judge_found(check: Check, count: int, examples: Sequence[str]) -> CheckResult:
    """The result of a test, from the number of rows or keys that fail it."""
    shown = tuple(examples[:EXAMPLES])
    if not count:
        return CheckResult(check.name, check.kind, True, 0, "as it should be")
    such = f", such as {'; '.join(shown)}" if shown else ""
    what = {
        "unique": f"{counted(count, 'key')} more than once",
        "accepted_values": f"{counted(count, 'row')} with other values",
        "sql": f"the query returned {counted(count, 'row')}",
    }[check.kind]
    return CheckResult(check.name, check.kind, False, count, f"{what}{such}", shown)


def shown_row(names: Sequence[str], values: Sequence[object]) -> str:
    """The values of a row as text."""
    return ", ".join(f"{name} = {value!r}" for name, value in zip(names, values, strict=True))
