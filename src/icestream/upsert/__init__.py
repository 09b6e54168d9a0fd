"""Merge: rows of a stream update, delete or join the rows of a table that have the same key."""
