"""An empty table for streams."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.support.spark_orders import ORDERS


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """An empty table of orders."""
    return catalog.create_table("db.orders", ORDERS)
