"""Settings: what a command says about a table after Ctrl-C."""

from __future__ import annotations

from unittest import mock

import pytest
from pyiceberg.table import Table

from icestream.cli.options.settings import Settings


def test_a_table_that_can_not_be_looked_up_after_ctrl_c_is_said_so(orders: Table) -> None:
    with (
        mock.patch.object(Table, "refresh", side_effect=OSError),
        pytest.raises(KeyboardInterrupt) as caught,
        Settings().changing(orders),
    ):
        raise KeyboardInterrupt
    assert "could not find out whether" in caught.value.__notes__[0]
