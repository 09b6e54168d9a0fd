"""Draws memory over time: as text for a terminal, and as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from icestream.cli.demo.memory_trace import MemoryTrace

BLOCKS = "█░╌│└─"
_PLAIN = "#.-|+-"
_WIDTH, _HEIGHT = 760, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 20, 64, 40
_OURS, _THEIRS, _LIMIT = "#1f6feb", "#f0a04b", "#c0392b"


def text_picture(
    ours: MemoryTrace,
    theirs: MemoryTrace,
    limit_bytes: int,
    *,
    width: int = 64,
    height: int = 12,
    plain: bool = False,
) -> list[str]:
    """Draw the picture as lines of text, without colours.

    Args:
        ours: The read with icestream.
        theirs: The read with PyIceberg.
        limit_bytes: The memory limit of icestream.
        width: Columns of the picture, without labels.
        height: Lines of the picture, without labels.
        plain: Whether to use only ASCII.
    """
    full, shade, dash, wall, corner, floor = tuple(_PLAIN if plain else BLOCKS)
    seconds, top = _scales(ours, theirs, limit_bytes)
    low, high = (each.over_time(width, seconds / width) for each in (ours, theirs))
    limit_line = min(height - 1, int(limit_bytes / top * height))
    lines = []
    for line in reversed(range(height)):
        level = (line + 0.5) / height * top
        cells = "".join(
            full
            if column < len(low) and low[column] >= level
            else shade
            if column < len(high) and high[column] >= level
            else dash
            if line == limit_line
            else " "
            for column in range(width)
        )
        label = mb(limit_bytes) if line == limit_line else ""
        label = mb(top) if line == height - 1 else label
        lines.append(f"{label:>9} {wall}{cells}")
    end = f"{seconds:.1f} s"
    return [
        *lines,
        f"{'0':>9} {corner}{floor * width}",
        f"{'':11}0{end:>{width - 1}}",
        f"{'':11}{full} icestream   {shade} PyIceberg   {dash}{dash} the limit, {mb(limit_bytes)}",
    ]


def svg_picture(ours: MemoryTrace, theirs: MemoryTrace, limit_bytes: int) -> str:
    """Draw the picture as SVG, without fonts or scripts."""
    seconds, top = _scales(ours, theirs, limit_bytes)
    across, down = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(at: float) -> float:
        return round(_LEFT + at / seconds * across, 1)

    def y(count: float) -> float:
        return round(_TOP + down - count / top * down, 1)

    def line(trace: MemoryTrace, of: str) -> list[str]:
        steps = 300
        values = trace.over_time(steps, seconds / steps, of)
        points = [f"{x(step / steps * seconds)},{y(value)}" for step, value in enumerate(values)]
        return [*points, f"{x(trace.seconds)},{y(values[-1])}"]

    def area(trace: MemoryTrace, colour: str) -> str:
        points = [f"{x(0)},{y(0)}", *line(trace, "grown_bytes"), f"{x(trace.seconds)},{y(0)}"]
        return (
            f'<polygon points="{" ".join(points)}" fill="{colour}" fill-opacity="0.45" '
            f'stroke="{colour}" stroke-width="1.5"/>'
        )

    title = f"Reading {ours.rows:,} rows: memory of the process over time"
    held = f'<polyline points="{" ".join(line(ours, "held_bytes"))}" fill="none" stroke="#0b2f6b"/>'
    parts = [
        _text(_LEFT, 22, title, size=15),
        *_legend(ours, theirs, limit_bytes),
        *(_level(level, y(level)) for level in _levels(top)),
        area(theirs, _THEIRS),
        area(ours, _OURS),
        held,
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(limit_bytes)}" y2="{y(limit_bytes)}" '
        f'stroke="{_LIMIT}" stroke-width="1.5" stroke-dasharray="6 4"/>',
        *(
            _text(x(second), _HEIGHT - 16, f"{second:g} s", anchor="middle")
            for second in _levels(seconds)
        ),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            f'width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def _legend(ours: MemoryTrace, theirs: MemoryTrace, limit_bytes: int) -> list[str]:
    entries: Sequence[tuple[str, str]] = (
        (
            _OURS,
            f"icestream, at most {mb(ours.grown_peak_bytes)} (dark line: held by the scan)",
        ),
        (_THEIRS, f"PyIceberg, at most {mb(theirs.grown_peak_bytes)}"),
        (_LIMIT, f"limit {mb(limit_bytes)}"),
    )
    parts, left = [], float(_LEFT)
    for colour, text in entries:
        parts.append(f'<rect x="{left}" y="36" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(left + 15, 45, text))
        left += 30 + 6.1 * len(text)
    return parts


def _level(count: float, at: float) -> str:
    ruler = (
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at}" y2="{at}" stroke="#d0d7de" '
        'stroke-width="0.7"/>'
    )
    return ruler + _text(_LEFT - 8, at + 4, mb(count), anchor="end")


def _text(x: float, y: float, text: str, *, size: int = 11, anchor: str = "start") -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="#24292f" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )


def _scales(ours: MemoryTrace, theirs: MemoryTrace, limit_bytes: int) -> tuple[float, float]:
    """Return the length of the time axis in seconds, and of the memory axis in bytes."""
    seconds = max(ours.seconds, theirs.seconds)
    most = max(ours.grown_peak_bytes, theirs.grown_peak_bytes, limit_bytes)
    return seconds, most * 1.08


def _levels(top: float) -> list[float]:
    """Return four to ten round numbers from zero to the top."""
    step = 10.0 ** math.floor(math.log10(top))
    step = next(step / cut for cut in (1, 2, 5, 10) if top / (step / cut) >= 4)
    return [step * number for number in range(int(top / step) + 1)]


def mb(count: float) -> str:
    """Format a number of bytes."""
    return f"{count / 1e6:,.0f} MB"
