"""Reports as text for `print`, and as HTML for notebooks.

A report that inherits from `Displayed` shows its fields with their units. Fields that have their
default value, and empty ones, are left out. HTML escapes all values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any

_MOST_ITEMS = 10
_LONG_TEXT = 60
_BAR_WIDTH = 20
_LABELS = {"seconds": "took", "seconds_to_first_batch": "first batch after", "bytes": "size"}
_MEMORY = ("peak_bytes_held", "memory_limit_bytes")
_TRACK = (
    "display:inline-block;width:10em;height:.6em;margin-left:.8em;border-radius:.3em;"
    "background:rgba(127,127,127,.3)"
)
_FILL = "height:100%;border-radius:.3em;background:{}"
_CELL = "text-align:left;vertical-align:top;padding:.1em 1em .1em 0"
_LABEL = f"{_CELL};white-space:nowrap"
_BLUE, _RED = "#2f81c7", "#d1453b"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a report.

    Attributes:
        label: What it is.
        value: A text, several texts, or a table whose first row is the header.
        part: Bytes held and the limit, if a bar shows them.
    """

    label: str
    value: str | list[str] | list[list[str]]
    part: tuple[int, int] | None = None


class Displayed:
    """A report that is readable in a terminal and in a notebook."""

    __slots__ = ()

    def __repr__(self) -> str:
        return as_text(type(self).__name__, figures_of(self))

    def _repr_html_(self) -> str:
        return as_html(type(self).__name__, figures_of(self))


def figures_of(report: Any) -> list[Figure]:
    """The fields of a report that say something."""
    values = {field.name: getattr(report, field.name) for field in fields(report)}
    defaults = {field.name: field.default for field in fields(report)}
    return [
        _figure(name, value, values)
        for name, value in values.items()
        if value not in (None, "", (), {}, defaults[name]) and name != _MEMORY[0]
    ]


def memory_figure(held_bytes: int | None, limit_bytes: int, label: str = "memory") -> Figure:
    """A line for the memory limit, with a bar if the bytes held are known."""
    if held_bytes is None:
        return Figure(f"{label} limit", size(limit_bytes))
    return Figure(label, f"{size(held_bytes)} of {size(limit_bytes)}", (held_bytes, limit_bytes))


def as_text(title: str, figures: Sequence[Figure]) -> str:
    """The figures below their title, in two columns."""
    width = max((len(figure.label) for figure in figures), default=0)
    lines = [title]
    for figure in figures:
        first, *others = _text_lines(figure)
        lines.append(f"  {figure.label:<{width}}  {first}")
        lines += [f"  {'':<{width}}  {line}" for line in others]
    return "\n".join(line.rstrip() for line in lines)


def as_html(title: str, figures: Sequence[Figure]) -> str:
    """The figures as a table, in the colors of the notebook."""
    rows = "".join(
        f'<tr><th style="{_LABEL}">{escape(figure.label)}</th>'
        f'<td style="{_CELL}">{_html_value(figure)}</td></tr>'
        for figure in figures
    )
    return f"<div><strong>{escape(title)}</strong><table><tbody>{rows}</tbody></table></div>"


def size(count: int) -> str:
    """Format a number of bytes."""
    for unit, bytes_each in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= bytes_each:
            return f"{count / bytes_each:.1f}".removesuffix(".0") + f" {unit}"
    return f"{count} B"


def seconds(count: float) -> str:
    """Format a duration."""
    if count < 1:
        return f"{count * 1000:.0f} ms"
    if count < 120:
        return f"{count:.1f} s"
    return f"{count / 60:.1f} min"


def moment(milliseconds: int | None) -> str | None:
    """Format a time in UTC, to the second."""
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _figure(name: str, value: Any, values: Mapping[str, Any]) -> Figure:
    if name == _MEMORY[1]:
        held_bytes = values.get(_MEMORY[0])
        if held_bytes is None and "buffer_bytes" in values:  # The prediction of a scan.
            held_bytes = value - values["buffer_bytes"]
        return memory_figure(held_bytes, value)
    label = _LABELS.get(name, name.removesuffix("_ms").replace("_", " "))
    if isinstance(value, (tuple, list)):
        if is_dataclass(value[0]):
            return Figure(label, _table(value))
        return Figure(label, _list([_text(name, item) for item in value]))
    if isinstance(value, Mapping):
        pairs = [f"{key} {_text('seconds', item)}" for key, item in value.items()]
        return Figure(label, _list(pairs))
    return Figure(label, _text(name, value))


def _text(name: str, value: object) -> str:
    """A value with its unit, which the name says."""
    words = name.split("_")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and "bytes" in words:
        return size(value)
    if isinstance(value, (int, float)) and "seconds" in words:
        return seconds(value)
    if isinstance(value, int) and words[-1] == "ms":
        return moment(value) or ""
    if isinstance(value, int) and words[-1] not in ("id", "ids"):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.3g}"
    return "" if value is None else str(value)


def _list(items: list[str]) -> str | list[str]:
    shown = items[:_MOST_ITEMS]
    if len(items) > _MOST_ITEMS:
        shown.append(f"and {len(items) - _MOST_ITEMS:,} more")
    return ", ".join(shown) if max(map(len, shown)) < _LONG_TEXT else shown


def _table(items: Sequence[Any]) -> list[list[str]]:
    """Dataclasses as rows. Fields without a plain value in any row are left out."""
    names = [
        field.name
        for field in fields(items[0])
        if any(isinstance(getattr(item, field.name), (str, int, float)) for item in items)
        and any(getattr(item, field.name) not in (None, "", ()) for item in items)
    ]
    header = [name.removesuffix("_ms").replace("_", " ") for name in names]
    rows = [[_text(name, getattr(item, name)) for name in names] for item in items[:_MOST_ITEMS]]
    if len(items) > _MOST_ITEMS:
        rows.append([f"and {len(items) - _MOST_ITEMS:,} more", *[""] * (len(names) - 1)])
    return [header, *rows]


def _text_lines(figure: Figure) -> Iterable[str]:
    if isinstance(figure.value, str):
        return [figure.value + (f"  {_text_bar(*figure.part)}" if figure.part else "")]
    rows = [row if isinstance(row, list) else [row] for row in figure.value]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]


def _text_bar(held_bytes: int, limit_bytes: int) -> str:
    filled = round(_BAR_WIDTH * min(1.0, held_bytes / max(limit_bytes, 1)))
    return f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}]"


def _html_value(figure: Figure) -> str:
    if isinstance(figure.value, str):
        return escape(figure.value) + (_html_bar(*figure.part) if figure.part else "")
    return "".join(_html_rows(figure.value))


def _html_rows(value: list[str] | list[list[str]]) -> Iterator[str]:
    if isinstance(value[0], str):
        yield "<br>".join(escape(str(line)) for line in value)
        return
    yield "<table>"
    for number, row in enumerate(value):
        tag = "td" if number else "th"
        cells = "".join(f'<{tag} style="{_CELL}">{escape(cell)}</{tag}>' for cell in row)
        yield f"<tr>{cells}</tr>"
    yield "</table>"


def _html_bar(held_bytes: int, limit_bytes: int) -> str:
    percent = 100 * held_bytes / max(limit_bytes, 1)
    fill = _FILL.format(_BLUE if percent <= 100 else _RED)
    return (
        f'<span style="{_TRACK}"><span style="display:block;width:{min(percent, 100):.0f}%;{fill}">'
        "</span></span>"
    )
