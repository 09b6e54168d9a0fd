"""Commits: new files become one snapshot of a table.

An operation plans a `Change`, and a landing commits it to a table or stages it in a transaction.
The committer tries it again after conflicts, and finds out what happened if an answer was lost.

```
change.py           what the snapshot changes: plain data
landing.py          commits to a table, or stages in a transaction (staged_change.py)
committer.py        tries a change until its outcome is known (attempt.py: one try)
joined_transaction.py  several changes in a transaction, as one snapshot
schema_change.py    schema evolution in the same commit
new_table.py        a table that its first write creates
ref_change.py       commits that create, move or drop branches
in_flight.py        the marker of a write that is under way
cleanup.py          deletes files
observed_commit.py  logs, spans and metrics

snapshot/    manifests, the summary, and conflicts with concurrent commits
outcome/     retries, lost answers, and loads that were committed before
```
"""
