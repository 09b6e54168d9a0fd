"""Committing: files become one snapshot, or nothing at all."""
