"""Ten scans on one budget, beside the same scans one after the other.

`python -m benchmarks.shared_budget`. Both take turns in one process, after one scan to warm up.
The last line has the ratio of the medians, and the growth of the process at its peak.
"""

from __future__ import annotations

import argparse
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import icestream as ice
from benchmarks.data.tables import load_table
from benchmarks.datasets import ensure, table_name
from benchmarks.measure.peaks import PeakMeter
from benchmarks.measure.runner import REPOSITORY, warm


def main() -> None:
    """Run both ways, and print seconds, CPU seconds, the ratio and the growth of the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", default="a", help="data set to read")
    parser.add_argument("--scale", type=float, default=0.2, help="share of its rows")
    parser.add_argument("--memory", default="64MB", help="the memory limit of all scans together")
    parser.add_argument("--scans", type=int, default=10, help="number of scans")
    parser.add_argument("--repeat", type=int, default=3, help="number of runs of each way")
    parser.add_argument(
        "--root", type=Path, default=REPOSITORY / ".bench", help="folder for data and results"
    )
    options = parser.parse_args()
    ensure(options.root, options.set, options.scale)
    name = table_name(options.set, options.scale)
    warm(options.root, name)
    table = load_table(options.root, name)
    budget = ice.MemoryBudget(options.memory)

    def read(_: int = 0) -> int:
        return sum(batch.num_rows for batch in ice.scan(table, memory=budget))

    meter = PeakMeter()
    expected = read()
    seconds: dict[int, list[float]] = {1: [], options.scans: []}
    for _ in range(options.repeat):
        for threads, times in seconds.items():
            began, cpu = time.perf_counter(), time.process_time()
            with ThreadPoolExecutor(threads) as pool:
                rows = list(pool.map(read, range(options.scans)))
            times.append(time.perf_counter() - began)
            assert rows == [expected] * options.scans, "a scan returned another number of rows"
            cpu_seconds = time.process_time() - cpu
            print(f"{threads:3} at a time: {times[-1]:6.2f} s, {cpu_seconds:6.2f} CPU s")
    one, many = (statistics.median(times) for times in seconds.values())
    growth = meter.peaks().rss_growth_bytes / 1e6
    print(f"ratio {many / one:.2f}, growth {growth:.0f} MB at a limit of {options.memory}")


if __name__ == "__main__":
    main()
