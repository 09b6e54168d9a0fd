"""Validation of requests: pydantic checks the values, and its errors become plain sentences.

Models raise pydantic's errors, which contain the keys that lead to a value. `explained` turns the
first one into an `InvalidArgumentError`. Values that may be secret never appear in a message.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    ValidationError,
    ValidationInfo,
    WrapValidator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from icestream.errors import InvalidArgumentError

Path = tuple[str | int, ...]

CONFIG = ConfigDict(extra="forbid", arbitrary_types_allowed=True, hide_input_in_errors=True)
_OURS = "explained"
_SECRET = {"jdbc", "database", "user", "password", "options", "properties", "table_properties"}
_HINTS = {
    "bool_type": "give true or false",
    "string_type": "give text",
    "dict_type": "give names and values, as in 'a: b'",
    "dataclass_type": "give names and values, as in 'a: b'",
    "tuple_type": "give a list",
    "too_short": "give at least one",
}


class RequestModel(BaseModel):
    """A mapping. An unknown key is an error that suggests the nearest known key."""

    model_config = CONFIG
    what: ClassVar[str] = "the request"
    hint: ClassVar[str] = "give names and values, as in 'a: b'"

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError(f"{cls.what} is {_shown(value, ())}: {cls.hint}")
        locate_unknown_keys(cls.what, value, cls.model_fields)
        return value


def expect(hint: str, *, name: str | None = None) -> WrapValidator:
    """Say what to write if a value does not have the annotated type.

    Args:
        hint: What to write instead.
        name: The value's name in the message; by default the field's name.
    """

    def check(value: Any, handler: Callable[[Any], Any], info: ValidationInfo) -> Any:
        try:
            return handler(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            # A union adds the name of a type to the path, even for the value itself.
            is_whole = not first["loc"] or first["input"] is value
            nested = not is_whole and isinstance(value, (list, tuple, Mapping))
            if nested or first["type"] in ("value_error", _OURS):
                raise
            field = info.field_name or ""
            raise _custom(f"{name or field} is {_shown(value, (field,))}: {hint}") from None

    return WrapValidator(check)


def about(description: str) -> Any:
    """Describe an option, for the JSON Schema."""
    return Field(description=description)


def error_at(path: Path, message: str) -> ValidationError:
    """An error about the value at a path, for use in validators."""
    details = InitErrorDetails(type=_custom(message), loc=path, input=None)
    return ValidationError.from_exception_data("request", [details], hide_input=True)


@contextmanager
def explained(
    error: Callable[[Path, str], Exception] = lambda _, message: InvalidArgumentError(message),
    path: Path = (),
) -> Iterator[None]:
    """Turn pydantic's errors into an `InvalidArgumentError`.

    Args:
        error: Creates the error from the path of the value and a message.
        path: The path of the validated value.
    """
    try:
        yield
    except ValidationError as invalid:
        first = invalid.errors(include_url=False)[0]
        explanation = error((*path, *first["loc"]), _message(dict(first)))
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, InvalidArgumentError) and isinstance(
            explanation, InvalidArgumentError
        ):
            explanation.text, explanation.position = cause.text, cause.position
        raise explanation from None


def check_keys(where: str, keys: Iterable[object], known: Iterable[str]) -> None:
    """Refuse unknown keys.

    Args:
        where: The owner of the keys, for the message.
        keys: The keys.
        known: The known keys.

    Raises:
        InvalidArgumentError: If a key is unknown.
    """
    with explained():
        locate_unknown_keys(where, keys, known)


def locate_unknown_keys(
    where: str, keys: Iterable[object], known: Iterable[str], path: Path = ()
) -> None:
    """Refuse unknown keys, like `check_keys`, for use in validators."""
    choices = tuple(known)
    for key in keys:
        if key not in choices:
            hint = suggestion(str(key), choices)
            raise error_at((*path, str(key)), f"{where} has {key!r}, which is unknown: {hint}")


def suggestion(value: str, known: tuple[str, ...]) -> str:
    """A hint that names the nearest known word, or all known words."""
    near = difflib.get_close_matches(value, known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"give one of {', '.join(repr(each) for each in known)}"


def _custom(message: str) -> PydanticCustomError:
    return PydanticCustomError(_OURS, "{message}", {"message": message})


def _message(error: Mapping[str, Any]) -> str:
    kind, loc, value = error["type"], error["loc"], error["input"]
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind == _OURS:
        return str(error["msg"])
    name = next((str(each) for each in reversed(loc) if isinstance(each, str)), "the request")
    if kind == "missing":
        return f"no {name!r} is given"
    if kind == "literal_error":
        hint = suggestion(str(value), tuple(re.findall("'([^']+)'", error["ctx"]["expected"])))
    else:
        hint = _HINTS.get(kind) or f"{error['msg'][0].lower()}{error['msg'][1:]}"
    return f"{name} is {_shown(value, loc)}: {hint}"


def _shown(value: object, path: Path) -> str:
    """The value, if it is plain and not secret."""
    is_plain = not value or isinstance(value, (str, int, float))
    return repr(value) if is_plain and not _SECRET & set(path) else "not valid"


def truth_of_text(value: object) -> object:
    """Convert true and false to a boolean: the values of variables are text."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return value


def listed(value: object) -> object:
    """Convert a single text or path to a tuple of one. Paths become texts."""
    if isinstance(value, (list, tuple)):
        return tuple(os.fspath(each) if isinstance(each, os.PathLike) else each for each in value)
    return (os.fspath(value),) if isinstance(value, (str, os.PathLike)) else value


ONE_OR_MORE = BeforeValidator(listed, json_schema_input_type=str | list[str])
Switch = Annotated[StrictBool, BeforeValidator(truth_of_text)]
NotBlank = Annotated[str, Field(pattern=r"\S")]
Text = Annotated[NotBlank, expect("give text that is not empty")]
Texts = Annotated[tuple[Text, ...], ONE_OR_MORE, expect("give a list of texts")]
