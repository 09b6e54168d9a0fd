"""Encodes the results of tasks as JSON: values and fields, never code.

A result passes through rows of Spark. Decoding it builds only plain values and the classes that the
caller names, so a forged result can be wrong but cannot run code.

| tag | value |
|---|---|
| `p` | tuple of text, numbers, booleans and nulls |
| `t`, `l`, `s` | other tuple, list, frozenset |
| `m` | dict, as pairs |
| `b` | bytes, in base64 |
| `n`, `d`, `dt`, `tm`, `u` | decimal, date, datetime, time, UUID, as text |
| `r` | a `Record` of PyIceberg: the values of a partition |
| `f` | a `DataFile` of PyIceberg: its spec and its fields |
| a class's name | the values of a dataclass's fields |
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, TypeVar
from uuid import UUID

import numpy as np
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from icestream.errors import TaskFailedError

_FILE_FIELDS = (
    "content",
    "file_path",
    "file_format",
    "partition",
    "record_count",
    "file_size_in_bytes",
    "column_sizes",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
    "key_metadata",
    "split_offsets",
    "equality_ids",
    "sort_order_id",
)
_UNREADABLE = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
_PLAIN = (type(None), bool, int, float, str)
_PLAIN_TYPES = frozenset(_PLAIN)
_Result = TypeVar("_Result")


def encode(value: object) -> bytes:
    """Encode a value as bytes for `decode`.

    Raises:
        TypeError: If a part of the value is neither plain data nor a dataclass.
    """
    return json.dumps(_tagged(value), separators=(",", ":")).encode()


def decode(data: bytes, kind: type[_Result], *parts: type) -> _Result:
    """Decode the bytes that `encode` returned.

    Args:
        data: The bytes that a task returned.
        kind: The expected class.
        parts: Other dataclasses that the value may contain.

    Raises:
        TaskFailedError: If the value is anything else.
    """
    known = {each.__name__: each for each in (kind, *parts) if is_dataclass(each)}
    try:
        value = _value(json.loads(data), known)
    except _UNREADABLE as e:
        raise TaskFailedError(
            f"the result of a task can't be read ({type(e).__name__}): make sure that executors "
            "and driver have the same version of icestream"
        ) from e
    if not isinstance(value, kind):
        raise TaskFailedError(
            f"a task returned a {type(value).__name__} instead of a {kind.__name__}: make sure "
            "that executors and driver have the same version of icestream"
        )
    return value


def _tagged(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Enum):
        value = value.value
    if type(value) in _PLAIN:
        return value
    if type(value) is tuple and _PLAIN_TYPES.issuperset(map(type, value)):
        return ["p", *value]
    if isinstance(value, bytes):
        return ["b", base64.b64encode(value).decode("ascii")]
    for tag, kind in _SEQUENCES.items():
        if isinstance(value, kind):
            return [tag, *map(_tagged, value)]
    if isinstance(value, Mapping):
        return ["m", *([_tagged(key), _tagged(each)] for key, each in value.items())]
    for tag, kind in _TEXTS.items():
        if type(value) is kind:
            return [tag, value.isoformat() if isinstance(value, (date, time)) else str(value)]
    if isinstance(value, DataFile):
        return ["f", value.spec_id, *(_tagged(getattr(value, name)) for name in _FILE_FIELDS)]
    if isinstance(value, Record):
        return ["r", *(_tagged(value[number]) for number in range(len(value)))]
    if is_dataclass(value):
        return [type(value).__name__, *(_tagged(getattr(value, f.name)) for f in fields(value))]
    raise TypeError(f"a task can't return a {type(value).__name__}")


def _value(tagged: Any, known: dict[str, type]) -> Any:
    if not isinstance(tagged, list):
        if type(tagged) not in _PLAIN:
            raise ValueError("a result has an object without a tag")
        return tagged
    tag, rest = tagged[0], tagged[1:]
    if tag == "p":  # decoded as a whole, because the columns of a result can be long
        if not _PLAIN_TYPES.issuperset(map(type, rest)):
            raise ValueError("a tuple of plain values has other values")
        return tuple(rest)
    if tag == "b":
        return base64.b64decode(rest[0], validate=True)
    if tag in _TEXTS:
        return _FROM_TEXT[tag](rest[0])
    if tag == "m":
        return {_value(key, known): _value(each, known) for key, each in rest}
    values = [_value(each, known) for each in rest]
    if tag in _SEQUENCES:
        return _SEQUENCES[tag](values)
    if tag == "r":
        return Record(*values)
    if tag == "f":
        return _file(values)
    kind = known[tag]
    if len(values) != len(fields(kind)):
        raise ValueError(f"a {tag} has {len(values)} fields")
    return kind(*values)


def _file(values: list[Any]) -> DataFile:
    arguments = dict(zip(_FILE_FIELDS, values[1:], strict=True))
    arguments["content"] = DataFileContent(arguments["content"])
    arguments["file_format"] = FileFormat(arguments["file_format"])
    file = DataFile.from_args(**arguments)
    file.spec_id = values[0]
    return file


_SEQUENCES: dict[str, type[Any]] = {"t": tuple, "l": list, "s": frozenset}
_TEXTS: dict[str, type] = {"n": Decimal, "d": date, "dt": datetime, "tm": time, "u": UUID}
_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "n": Decimal,
    "d": date.fromisoformat,
    "dt": datetime.fromisoformat,
    "tm": time.fromisoformat,
    "u": UUID,
}
