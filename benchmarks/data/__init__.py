"""The data of the benchmarks. All rows are the same on every run."""
