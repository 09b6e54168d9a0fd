"""A table of orders."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.support.spark_reads import partitioned_orders


@pytest.fixture
def orders(catalog: SqlCatalog) -> Table:
    """A partitioned table of three appends, with rows deleted by position in two files."""
    return partitioned_orders(catalog)
