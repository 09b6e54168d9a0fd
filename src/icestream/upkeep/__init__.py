"""Upkeep: small files compacted, orphans found, health told."""
