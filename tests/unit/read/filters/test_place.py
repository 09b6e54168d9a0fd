from __future__ import annotations

import pickle

import icestream as ice
from icestream.read.filters.place import mistake_in


def test_a_message_ends_with_the_place_and_is_one_line() -> None:
    error = mistake_in(ice.InvalidArgumentError, "it is\nwrong", "a > b", 4)
    assert str(error) == "it is wrong (character 5 of 'a > b')"
    assert (error.text, error.position) == ("a > b", 4)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.text, copy.position) == (str(error), "a > b", 4)


def test_a_long_filter_is_shown_around_the_place() -> None:
    text = "a = 1 and " * 50
    message = str(mistake_in(ice.UnknownColumnError, "it is wrong", text, 250))
    assert "(character 251 of '...a = 1 and" in message
    assert message.endswith("...')")
    assert len(message) < 200


def test_a_filter_without_text_has_no_place() -> None:
    error = mistake_in(ice.UnknownColumnError, "it is wrong", None, None)
    assert (str(error), error.text, error.position) == ("it is wrong", None, None)
