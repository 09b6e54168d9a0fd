"""What an update may not contain."""

from __future__ import annotations

import pytest

from icestream.spark.writing import update_job


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(SELECT max(id) from t)", ["a subquery"]),
        ("exists(\n from t)", ["a subquery"]),
        ("sum(id) OVER(partition by part)", ["a window"]),
        ("lag(id) over w", ["a window"]),
        ("concat('it''s \\' (select 1)', \"over (\", `select`, selected)", []),
    ],
)
def test_without_a_plan_the_words_tell_what_may_move_rows(text: str, found: list[str]) -> None:
    assert update_job.unsafe_words(text) == found
