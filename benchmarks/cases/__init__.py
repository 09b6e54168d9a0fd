"""One measurement. A suite starts each module in a fresh process, and reads JSON from stdout."""
