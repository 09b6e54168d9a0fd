"""Names of Spark settings that icestream reads or makes."""

MEMORY_SETTING = "spark.icestream.memory"
BATCH_ROWS_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"
PUSHDOWN_SETTING = "spark.sql.python.filterPushdown.enabled"
