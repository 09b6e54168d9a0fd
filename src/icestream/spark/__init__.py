"""Iceberg on Spark through PySpark, with no jar: executors read in their Python workers."""
