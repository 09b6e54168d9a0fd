"""Running cases in fresh processes, measuring memory, and comparing results with goals."""
