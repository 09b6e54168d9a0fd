"""Memory over time as text and as SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from icestream.cli.demo.memory_picture import svg_picture, text_picture
from icestream.cli.demo.memory_trace import MemoryTrace, Reader, Sample


def _trace(reader: Reader, *points: tuple[float, int]) -> MemoryTrace:
    samples = tuple(Sample(seconds, grown, grown // 2, 0) for seconds, grown in points)
    most = max(grown for _, grown in points)
    return MemoryTrace(reader, 10, 45, points[-1][0], 0.0, most, most, samples)


_OURS = _trace("icestream", (0.0, 0), (1.0, 50_000_000), (2.0, 50_000_000))
_THEIRS = _trace("pyiceberg", (0.0, 0), (2.0, 300_000_000), (4.0, 400_000_000))


def test_the_text_shows_both_readers_and_the_limit_to_scale() -> None:
    lines = text_picture(_OURS, _THEIRS, 100_000_000, width=8, height=8, plain=True)
    assert lines == [
        "   432 MB |        ",
        "          |       .",
        "          |    ....",
        "          |    ....",
        "          |    ....",
        "          |    ....",
        "   100 MB |----....",
        "          |  ###...",
        "        0 +--------",
        "           0  4.0 s",
        "           # icestream   . PyIceberg   -- the limit, 100 MB",
    ]


def test_blocks_are_used_where_they_can_be_shown() -> None:
    text = "\n".join(text_picture(_OURS, _THEIRS, 100_000_000))
    assert "█" in text
    assert "░" in text
    assert "#" not in text


def test_the_svg_has_an_area_for_each_reader_and_tells_the_peaks() -> None:
    picture = svg_picture(_OURS, _THEIRS, 100_000_000)
    root = ET.fromstring(picture)
    assert len(root.findall("{*}polygon")) == 2
    assert "at most 50 MB" in picture
    assert "at most 400 MB" in picture
    assert "limit 100 MB" in picture
