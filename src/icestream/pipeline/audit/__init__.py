"""Audits: a load with tests writes to a branch, and is published only if the tests pass.

`AuditGate` runs the load on an audit branch, runs the tests there, and moves the table's branch to
the result in one commit.

```
audited_load.py       write, test, publish     publish.py       the audit branch
new_audited_table.py  the same for a new table
local_checks.py       tests in this process    spark_checks.py  tests on Spark
checked_columns.py    columns of the tests     repeated_keys.py duplicate keys
```
"""
