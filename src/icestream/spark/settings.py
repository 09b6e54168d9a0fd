"""Names of Spark settings that icestream reads or makes."""

MEMORY_SETTING = "spark.icestream.memory"
BATCH_ROWS_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"
PUSHDOWN_SETTING = "spark.sql.python.filterPushdown.enabled"
BATCH_BYTES_SETTING = "spark.sql.execution.arrow.maxBytesPerBatch"

_BATCHES_PER_LIMIT = 16


def batch_bytes(memory_bytes: int) -> str:
    """What Spark may put into one batch for a task, which the task holds beside its own."""
    return str(max(1, memory_bytes // _BATCHES_PER_LIMIT))
