"""Reports: what an operation did, as frozen dataclasses and as OpenTelemetry signals.

Each report has `to_dict()`, which `json.dumps` accepts.

```
scan_report.py     ScanReport, ScanExplanation
write_report.py    WriteReport, MergeReport
upkeep_report.py   CompactReport, OrphansReport, HealthReport
counted.py         numbers with their nouns: 1 row, 2 rows
display.py         reports as text, and as HTML for notebooks
telemetry.py       spans and metrics, if OpenTelemetry is installed
other_names.py     errors for names that other libraries use
deprecation.py     warnings for public names that a later version removes
version.py         the version of icestream
```
"""
