"""Deprecated names keep working, and warn."""

from __future__ import annotations

import inspect
import warnings

import pytest

from icestream.report.deprecation import deprecated, warn_deprecated


@deprecated(since="0.4", removed_in="0.6", instead="icestream.scan")
def old_scan(table: str, *, limit: int = 3) -> tuple[str, int]:
    """Read a table the old way."""
    return table, limit


def renamed(*, new: int = 0, old: int | None = None) -> int:
    if old is not None:
        warn_deprecated(
            "parameter 'old' of renamed", since="0.4", removed_in="0.6", instead="parameter 'new'"
        )
        return old
    return new


def test_a_deprecated_function_warns_with_both_versions_and_the_replacement() -> None:
    expected = (
        "old_scan is deprecated since icestream 0.4 and will be removed in 0.6: "
        "use icestream.scan instead$"
    )
    with pytest.warns(DeprecationWarning, match=expected):
        assert old_scan("sales.orders", limit=5) == ("sales.orders", 5)


@pytest.mark.parametrize(
    "call", ["old_scan('sales.orders')", "renamed(old=1)"], ids=["function", "parameter"]
)
def test_the_warning_points_to_the_code_that_called(call: str) -> None:
    code = compile(f"\n\n{call}", "caller.py", "exec")
    with pytest.warns(DeprecationWarning, match="deprecated") as caught:
        exec(code, globals())
    (warning,) = caught
    assert (warning.filename, warning.lineno) == ("caller.py", 3)


def test_a_deprecated_function_keeps_its_name_signature_and_docstring() -> None:
    assert old_scan.__name__ == "old_scan"
    assert old_scan.__doc__ == "Read a table the old way."
    assert list(inspect.signature(old_scan).parameters) == ["table", "limit"]
    assert "use icestream.scan instead" in old_scan.__deprecated__  # type: ignore[attr-defined]


def test_every_call_warns_not_only_the_first() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            old_scan("sales.orders")
    assert len(caught) == 3


def test_a_deprecated_parameter_warns_only_when_it_is_given() -> None:
    assert renamed(new=2) == 2  # A warning would be an error here.
    with pytest.warns(DeprecationWarning, match="use parameter 'new' instead"):
        assert renamed(old=1) == 1
