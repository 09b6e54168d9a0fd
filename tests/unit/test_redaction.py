"""Addresses of databases and stores, without what they say of users."""

from __future__ import annotations

import pytest

from icestream.redaction import redact, without_password

_ADDRESSES = {
    "jdbc:postgresql://me:hush@host:5432/db": "jdbc:postgresql://host:5432/db",
    "jdbc:postgresql://host/db?user=me&password=hush": "jdbc:postgresql://host/db",
    "jdbc:postgresql://host/db?sslpassword=hush": "jdbc:postgresql://host/db",
    "jdbc:sqlserver://host;databaseName=db;user=me;password=hush": "jdbc:sqlserver://host",
    "jdbc:oracle:thin:me/hush@//host:1521/db": "jdbc:oracle:thin:@//host:1521/db",
    "jdbc:oracle:thin:@//host:1521/db": "jdbc:oracle:thin:@//host:1521/db",
    "postgresql+psycopg2://me:hush@host/db": "postgresql+psycopg2://host/db",
}


@pytest.mark.parametrize(("address", "shown"), _ADDRESSES.items())
def test_an_address_is_shown_without_its_user_and_password(address: str, shown: str) -> None:
    assert without_password(address) == shown
    text = redact(f"connecting to '{address}' failed")
    assert "hush" not in text
    assert text.startswith("connecting to '")
    assert text.endswith("' failed")


def test_a_text_is_shown_without_the_values_of_secret_properties() -> None:
    assert redact("key hush is wrong", {"s3.secret-access-key": "hush"}) == "key ***** is wrong"
    assert redact("user hush is wrong", {"s3.region": "hush"}) == "user hush is wrong"
