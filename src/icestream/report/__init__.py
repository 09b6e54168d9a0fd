"""Reports: what an operation did, as frozen dataclasses and as OpenTelemetry signals.

Each report has `to_dict()`, which `json.dumps` accepts.

```
scan_report.py     ScanReport, ScanExplanation
write_report.py    WriteReport, MergeReport
upkeep_report.py   CompactReport, OrphansReport, HealthReport
counted.py         numbers with their nouns: 1 row, 2 rows
telemetry.py       spans and metrics, if OpenTelemetry is installed
deprecation.py     warnings for public names that a later version removes
version.py         the version of icestream
```
"""
