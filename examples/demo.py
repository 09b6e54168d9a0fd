"""Load a table through Spark, read it under a memory limit beside PyIceberg, aggregate it.

Run it with `make demo`. Each reader runs in a process of its own, so that the peaks are its own.
"""

# icestream first: it chooses the allocator that keeps a process near the bytes in use.
import icestream as ice  # isort: skip

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

ROOT = Path.cwd() / ".demo"
ROWS = 6_000_000
LIMIT = "64MB"
COUNTRIES = ["AR", "BR", "DE", "FR", "IN", "JP", "KE", "NO", "PE", "US"]


def catalog() -> SqlCatalog:
    return SqlCatalog("demo", uri=f"sqlite:///{ROOT}/catalog.db", warehouse=f"file://{ROOT}/data")


def make_orders(count: int) -> list[Path]:
    """Orders as another system might have left them: a few Parquet files."""
    folder = ROOT / "orders"
    folder.mkdir(parents=True)
    random = np.random.default_rng(7)
    paths = []
    for part, ids in enumerate(np.array_split(np.arange(count), 4)):
        n = len(ids)
        orders = pa.table(
            {
                "id": ids,
                "country": pa.array(COUNTRIES).take(pa.array(random.integers(0, 10, n))),
                "price": random.random(n).round(4) * 100,
                "bought_at": pa.array(
                    1_700_000_000_000_000 + random.integers(0, 10**13, n),
                    pa.timestamp("us", "UTC"),
                ),
                "note": pa.array([f"order {i:012x}" for i in random.integers(0, 2**48, n)]),
            }
        )
        paths.append(folder / f"part-{part}.parquet")
        pq.write_table(orders, paths[-1])
    return paths


def make_table(schema: pa.Schema) -> Table:
    demo = catalog()
    demo.create_namespace("shop")
    return demo.create_table("shop.orders", schema)


def load_on_spark(table: Table, paths: list[Path]) -> ice.WriteReport:
    """Executors write the files, this process commits them: one snapshot."""
    from icestream import spark as ice_spark

    session = ice_spark.session(memory=LIMIT)
    frame = session.read.parquet(*map(str, paths))
    return ice_spark.append(frame, table, load_id="orders-1")


def load_here(table: Table, paths: list[Path]) -> ice.WriteReport:
    """The same load without Spark."""
    return ice.append(table, ds.dataset(paths), memory=LIMIT, load_id="orders-1")


def memory_bytes(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    return 0


def read(engine: str) -> None:
    """Read the whole table with one engine, and print what it took as JSON."""
    table = catalog().load_table("shop.orders")
    started_with = memory_bytes("VmRSS")
    began = time.perf_counter()
    total = table.scan().count()
    done = 0
    batches = (
        ice.scan(table, memory=LIMIT)
        if engine == "icestream"
        else table.scan().to_arrow_batch_reader()
    )
    for batch in batches:
        done += batch.num_rows
        progress(engine, done, total)
    facts = {
        "rows": done,
        "seconds": time.perf_counter() - began,
        "arrow_bytes": pa.default_memory_pool().max_memory(),
        "rss_growth_bytes": max(memory_bytes("VmHWM") - started_with, 0),
    }
    print(json.dumps(facts))


def progress(engine: str, done: int, total: int) -> None:
    if sys.stderr.isatty() or done == total:
        filled = 30 * done // total
        bar = "#" * filled + "." * (30 - filled)
        end = "\n" if done == total else ""
        print(f"\r  {engine:10} [{bar}] {done:>9,} rows", end=end, file=sys.stderr, flush=True)


def in_its_own_process(engine: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--read", engine]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    facts: dict[str, float] = json.loads(answer.stdout)
    return facts


def show(engine: str, facts: dict[str, float], limit: str) -> None:
    rate = facts["rows"] / facts["seconds"] / 1e6
    print(
        f"  {engine:10} peak memory {facts['arrow_bytes'] / 1e6:,.0f} MB {limit}"
        f" (process grew by {facts['rss_growth_bytes'] / 1e6:,.0f} MB), {rate:.1f} million rows/s"
    )


def show_load(report: ice.WriteReport) -> None:
    print(
        f"  {report.rows_inserted:,} rows in {report.files_added} files and one snapshot"
        f" ({report.snapshot_id}), {report.seconds:.1f} s"
    )
    print(
        f"  load       peak memory {report.peak_bytes_held / 1e6:,.0f} MB of"
        f" {report.memory_limit_bytes / 1e6:,.0f} MB"
    )


def aggregate_on_spark(table: Table) -> None:
    from icestream import spark as ice_spark

    session = ice_spark.session(memory=LIMIT)
    try:
        frame = ice_spark.read(session, table, columns=["country", "price"])
        rows = (
            frame.groupBy("country").agg({"price": "avg", "*": "count"}).sort("country").collect()
        )
    finally:
        session.stop()
    for row in rows[:3]:
        print(f"  {row['country']}: {row['count(1)']:,} orders, {row['avg(price)']:.2f} on average")
    print(f"  ... {len(rows)} countries, {sum(row['count(1)'] for row in rows):,} orders")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--read", choices=["icestream", "pyiceberg"])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--without-spark", action="store_true")
    arguments = parser.parse_args()
    if arguments.read:
        read(arguments.read)
        return
    shutil.rmtree(ROOT, ignore_errors=True)
    print(f"1. Make {arguments.rows:,} orders in four Parquet files, in {ROOT}")
    paths = make_orders(arguments.rows)
    table = make_table(pq.read_schema(paths[0]))
    engine = "here" if arguments.without_spark else "on Spark, in Python workers, no jar"
    print(f"2. Load them into an Iceberg table {engine}, {LIMIT} for each task")
    load = load_here if arguments.without_spark else load_on_spark
    show_load(load(table, paths))
    again = load(table, paths)
    print(f"  the same load again: already committed is {again.already_committed}")
    print(f"3. Read all of it, with icestream inside {LIMIT} and with PyIceberg")
    ours, theirs = in_its_own_process("icestream"), in_its_own_process("pyiceberg")
    show("icestream", ours, f"of {LIMIT[:-2]} MB")
    show("pyiceberg", theirs, "without a limit")
    if not arguments.without_spark:
        print("4. Aggregate it on Spark")
        aggregate_on_spark(table)


if __name__ == "__main__":
    main()
