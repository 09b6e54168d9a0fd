"""Reports as text and as HTML: units, bars, tables, and nothing that a browser would run."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from icestream.pipeline.reports.run_report import LoadOutcome, RunReport
from icestream.report.display import Displayed

ROWS = pa.table({"id": range(1000), "<script>": ["x"] * 1000})


@dataclass(frozen=True, repr=False)
class _Report(Displayed):
    name: str
    bytes_read: int
    snapshot_ids: tuple[int, ...]
    texts: tuple[str, ...]
    peak_bytes_held: int
    memory_limit_bytes: int
    seconds: float
    rows_skipped: int = 0
    reason: str | None = None


_SHOWN = _Report(
    name="<b>a & b</b>",
    bytes_read=1_500_000,
    snapshot_ids=(1234567, 2),
    texts=("a" * 70, "b"),
    peak_bytes_held=3_000_000,
    memory_limit_bytes=4_000_000,
    seconds=1.25,
)


def test_a_report_prints_its_fields_with_units_and_without_defaults() -> None:
    assert str(_SHOWN).splitlines() == [
        "_Report",
        "  name          <b>a & b</b>",
        "  bytes read    1.5 MB",
        "  snapshot ids  1234567, 2",
        f"  texts         {'a' * 70}",
        "                b",
        "  memory        3 MB of 4 MB  [###############.....]",
        "  took          1.2 s",
    ]


def test_html_is_balanced_and_escapes_values() -> None:
    html = _SHOWN._repr_html_()
    assert "&lt;b&gt;a &amp; b&lt;/b&gt;" in html
    assert "width:75%" in html
    assert _is_balanced(html)


@dataclass(frozen=True, repr=False)
class _Limited(Displayed):
    memory_limit_bytes: int
    buffer_bytes: int = 0


def test_a_limit_without_bytes_held_has_no_bar() -> None:
    over = ice.MergeReport("merge", 1, peak_bytes_held=9, memory_limit_bytes=4)
    assert "width:100%;height:100%;border-radius:.3em;background:#d1453b" in over._repr_html_()
    assert str(_Limited(4_000)).splitlines()[1] == "  memory  4 kB of 4 kB  [####################]"


@pytest.fixture
def reports(catalog: SqlCatalog) -> list[object]:
    table = catalog.create_table("db.t", ROWS.schema)
    reports: list[object] = [ice.append(table, ROWS), ice.append(table, ROWS)]
    reports.append(ice.merge(table, ROWS, on="id"))
    scan = ice.scan(table, where="id < 7")
    scan.count()
    scan.to_arrow()
    reports += [scan, scan.explain(), scan.report, ice.health(table)]
    return [*reports, ice.compact(table), ice.orphans(table)]


def test_every_report_is_readable(reports: list[object]) -> None:
    for report in reports:
        html = report._repr_html_()
        assert _is_balanced(html)
        assert "<script>" not in html
        assert type(report).__name__ in html
        assert repr(report) == str(report)
        assert all(len(line) < 250 for line in str(report).splitlines())


def test_a_scan_shows_its_columns_and_its_limit(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema)
    snapshot_id = ice.append(table, ROWS).snapshot_id
    scan = ice.scan(table, where="id < 7", limit=1000, memory="8MB")
    assert str(scan).splitlines() == [
        "Scan",
        "  table       db.t",
        f"  snapshot    {snapshot_id}",
        "  filter      id < 7",
        "  columns     name      type",
        "              id        int64",
        "              <script>  large_string",
        "  limit       1,000 rows",
        "  memory now  0 B of 8 MB  [....................]",
    ]
    for text in ("db.t", "&lt;script&gt;", "int64", "8 MB", "id &lt; 7"):
        assert text in scan._repr_html_()


def test_a_run_shows_its_loads_as_a_table() -> None:
    done = LoadOutcome("orders", "done", into="db.orders", snapshot_id=7)
    text = str(RunReport("daily", "1", False, False, True, (done, LoadOutcome("x", "failed"))))
    assert "load    status  into       snapshot id" in text
    assert "orders  done    db.orders  7" in text


class _Balance(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.wrong += self.open.pop() != tag


def _is_balanced(html: str) -> bool:
    parser = _Balance()
    parser.feed(html)
    return not parser.open and not parser.wrong
