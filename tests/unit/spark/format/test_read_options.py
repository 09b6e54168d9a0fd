"""Options of a read: arguments that they become, and values that do not fit."""

from __future__ import annotations

import pytest

import icestream as ice
from icestream.spark.format.read_options import ReadOptions
from icestream.spark.setup.settings import SessionDefaults


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("snapshot-id", "x1", "option 'snapshot-id' is 'x1': give a whole number"),
        ("as-of-timestamp", "yesterday", "option 'as-of-timestamp' is 'yesterday': give millis"),
        ("memory", "lots", "option 'memory': memory 'lots' is not a size"),
        ("split-size", "0", "option 'split-size': split-size is '0'"),
        ("columns", "a,,b", "option 'columns' is 'a,,b': a name is empty"),
        ("columns", '["a"', "option 'columns' .* a JSON list"),
        ("columns", "[1]", "option 'columns' .* must contain names"),
        ("case-sensitive", "perhaps", "option 'case-sensitive' is 'perhaps': give true or false"),
        ("branch", " ", "option 'branch' is ' ': it is empty"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_option(
    name: str, value: str, message: str
) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=message):
        ReadOptions.of({"path": "db.t", name: value})


def test_options_become_arguments() -> None:
    options = ReadOptions.of(
        {
            "path": "db.t",
            "Catalog": "prod",
            "catalog.uri": "http://localhost",
            "columns": 'id, "a,b"',
            "metadata-columns": '["_file", "_pos"]',
            "memory": "1MB",
            "push-filters": "TRUE",
        }
    )
    assert options.catalog == "prod"
    assert options.catalog_properties == {"uri": "http://localhost"}
    assert options.scan == {"columns": ["id", "a,b"], "metadata_columns": ["_file", "_pos"]}
    assert (options.memory_bytes, options.push_filters) == (1_000_000, True)
    with pytest.raises(ice.InvalidArgumentError, match=r'name it, as in \.load\("db\.t"\)'):
        ReadOptions.of({})


def test_defaults_without_a_session_are_modest() -> None:
    assert SessionDefaults() == SessionDefaults(1, 256_000_000, None)
