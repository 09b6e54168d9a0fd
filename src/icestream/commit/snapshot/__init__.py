"""Snapshots: a change becomes manifests, a manifest list and a snapshot.

```
producer.py        writes them
summary.py         the counts in the snapshot's summary
conflicts.py       does a concurrent commit conflict with this one?
manifest_bins.py   which manifests to merge
spec_schema.py     a schema that has the columns of a partition spec
```
"""
