"""Addresses of databases and stores, without what they say of users."""

from __future__ import annotations

import traceback

import pytest

from icestream.catalogs.redaction import redact, shown_cause, without_password

_ADDRESSES = {
    "jdbc:postgresql://me:hush@host:5432/db": "jdbc:postgresql://host:5432/db",
    "jdbc:postgresql://me:pa?hush@host:5432/db": "jdbc:postgresql://host:5432/db",
    "jdbc:postgresql://me:pa/hush@host:5432/db": "jdbc:postgresql://host:5432/db",
    "jdbc:postgresql://me:pa#hush@host/db?ssl=true": "jdbc:postgresql://host/db",
    "jdbc:postgresql://me:p@hush@host/db": "jdbc:postgresql://host/db",
    "jdbc:postgresql://host/db?user=me&password=hush": "jdbc:postgresql://host/db",
    "jdbc:postgresql://host/db?password=p@hush": "jdbc:postgresql://host/db",
    "jdbc:postgresql://host:5432/db?password=p@hush": "jdbc:postgresql://host",
    "jdbc:postgresql://me:12?x=hush@host:5432/db": "jdbc:postgresql://me",
    "jdbc:postgresql://host/db?sslpassword=hush": "jdbc:postgresql://host/db",
    "jdbc:postgresql://host/db?newname=hush": "jdbc:postgresql://host/db",
    "jdbc:postgresql://[::1]:5432/db?password=hush": "jdbc:postgresql://[::1]:5432/db",
    "jdbc:postgresql://a:1,b:2/db?password=hush": "jdbc:postgresql://a:1,b:2/db",
    "jdbc:sqlserver://host;databaseName=db;user=me;password=hush": "jdbc:sqlserver://host/db",
    "jdbc:sqlserver://host\\one:1433;password={a;hush b};x=1": "jdbc:sqlserver://host\\one:1433",
    "jdbc:sqlserver://;serverName=host;port=1433;password=hush": "jdbc:sqlserver://host:1433",
    "jdbc:jtds:sqlserver://host:1433/db;user=me;password=hush": "jdbc:jtds:sqlserver://host:1433/db",
    "jdbc:oracle:thin:me/hush@//host:1521/db": "jdbc:oracle:thin://host:1521/db",
    "jdbc:oracle:thin:me/hush@host:1521:db": "jdbc:oracle:thin://host:1521/db",
    "jdbc:oracle:thin:@//host:1521/db": "jdbc:oracle:thin://host:1521/db",
    "jdbc:oracle:thin:me/hush": "jdbc:oracle:thin:*****",
    "jdbc:oracle:thin:me/hush@(DESCRIPTION=(ADDRESS=(PROTOCOL=TCP)(HOST=host)(PORT=1521))"
    "(CONNECT_DATA=(SERVICE_NAME=db)))": "jdbc:oracle:thin://host:1521/db",
    "jdbc:h2:mem:db;USER=me;PASSWORD=hush": "jdbc:h2:mem:db",
    "jdbc:h2:~/db;PASSWORD=hush": "jdbc:h2:~/db",
    "jdbc:h2:file:/data/db;CIPHER=AES;PASSWORD=hush hush": "jdbc:h2:file:/data/db",
    "jdbc:h2:tcp://host:9092/~/db;PASSWORD=hush": "jdbc:h2:tcp://host:9092/~/db",
    "jdbc:derby:db;user=me;password=hush": "jdbc:derby:db",
    "jdbc:hsqldb:hsql://host/db;password=hush": "jdbc:hsqldb:hsql://host/db",
    "jdbc:mysql://(host=host,port=3306,user=me,password=hush)/db": "jdbc:mysql://host:3306",
    "jdbc:mysql://address=(host=host)(port=3306)(password=hush)/db": "jdbc:mysql://host:3306",
    "jdbc:mysql://me:hush@(host=host,port=3306)/db": "jdbc:mysql://host:3306",
    "jdbc:mysql:loadbalance://me:hush@[a:1,b:2]/db?x=hush": "jdbc:mysql:loadbalance://[a:1,b:2]/db",
    "jdbc:mysql:replication://me:hush@a:1,me:hush@b:2/db": "jdbc:mysql:replication://b:2/db",
    "jdbc:mariadb://host/db?user=me&password=hush": "jdbc:mariadb://host/db",
    "jdbc:teradata://host/DATABASE=db,USER=me,PASSWORD=hush,TMODE=ANSI": "jdbc:teradata://host/db",
    "jdbc:teradata://host/USER=me,LOGDATA=hush": "jdbc:teradata://host",
    "jdbc:db2://host:50000/db:user=me;password=hush;": "jdbc:db2://host:50000/db",
    "jdbc:db2://host:50000/db:user=me;apiKey=hu@sh;": "jdbc:db2://host",
    "jdbc:informix-sqli://host:9088/db:INFORMIXSERVER=i;user=me;password=hush": (
        "jdbc:informix-sqli://host:9088/db"
    ),
    "jdbc:sybase:Tds:host:5000/db?PASSWORD=hush": "jdbc:sybase:Tds://host:5000/db",
    "jdbc:hive2://a:2181,b:2181/db;password=hush?x=1#y": "jdbc:hive2://a:2181,b:2181/db",
    "jdbc:databricks://host:443/default;httpPath=sql/1;PWD=hush": "jdbc:databricks://host:443/default",
    "jdbc:snowflake://a.snowflakecomputing.com/?user=me&password=hush&db=db": (
        "jdbc:snowflake://a.snowflakecomputing.com/db"
    ),
    "jdbc:unheard:me/hush": "jdbc:unheard:*****",
    "jdbc:unheard:hush": "jdbc:unheard:*****",
    "postgresql+psycopg2://me:hush@host/db": "postgresql+psycopg2://host/db",
    "mssql+pyodbc:///?odbc_connect=DRIVER%3Dx%3BPWD%3Dhush": "mssql+pyodbc:*****",
    "mongodb+srv://me:hush@host/db?authSource=admin": "mongodb+srv://host/db",
    "snowflake://me:hush@account/db/schema?warehouse=w": "snowflake://account/db/schema",
}
_STORES = {
    "s3://key:hu/hush@bucket/a/b.parquet": "s3://bucket/a/b.parquet",
    "s3://hush@bucket/a": "s3://bucket/a",
    "https://me:pa?hush@host:8181/catalog": "https://host:8181/catalog",
    "https://hush@host/catalog": "https://host/catalog",
    "https://bucket.host/a.parquet?X-Amz-Signature=hush&y=1": "https://bucket.host/a.parquet",
    "s3://bucket/a?secret_key=hush": "s3://bucket/a",
    "wasbs://box@account.host/a?sig=hush": "wasbs://box@account.host/a",
}
_KEPT = (
    "sqlite:////tmp/a@b/catalog.db",
    "s3://bucket/day=2026-01-01/at 12:00@x/part-??.parquet",
    "hdfs://name:8020/a@b/c",
    "abfss://box@account.dfs.core.windows.net/a/b",
    "file:///tmp/a;b=1/c?d",
    "/data/token=5/user=6/*.parquet",
    "https://host:8181/api/catalog",
    "thrift://host:9083",
    "data/part-?.csv",
)


@pytest.mark.parametrize(("address", "shown"), [*_ADDRESSES.items(), *_STORES.items()])
def test_an_address_is_shown_without_its_user_and_password(address: str, shown: str) -> None:
    assert without_password(address) == shown
    for text in (
        redact(f"connecting to '{address}' failed"),
        redact(f"connecting to {address} 'failed'", {"url": address}),
        redact(f"reading {address}, then 'failed'")
        if " " not in address
        else "connecting 'failed'",
    ):
        assert "hush" not in text
        assert text.endswith(("' failed", "'failed'"))


@pytest.mark.parametrize("address", _KEPT)
def test_what_only_looks_like_a_password_is_kept(address: str) -> None:
    assert without_password(address) == address
    assert redact(f"file {address} is not there") == f"file {address} is not there"


def test_a_text_is_shown_without_the_values_of_secret_properties() -> None:
    assert redact("key hush is wrong", {"s3.secret-access-key": "hush"}) == "key ***** is wrong"
    assert redact("key hush is wrong", {"header.X-Own": "hush"}) == "key ***** is wrong"
    assert redact("user hush is wrong", {"s3.region": "hush"}) == "user hush is wrong"


@pytest.mark.parametrize(
    "text",
    [
        "no login: user=me password=hush",
        "{'uri': 'http://host', 'credential': 'me:hush'}",
        '{"token":"hush"}',
        "Authorization: Bearer hush0123456",
        "password='a hush b'",
        "(PWD={a;hush})",
        "driver said jdbc:mysql://host/db?password=hush.",
        'cannot open "jdbc:h2:mem:db;PASSWORD=a hush".',
        "postgresql://me:a'hush@host/db is wrong",
        "host=host user=me password = 'hush'",
        "pwd = hush",
        "Password: hush",
        "s3.secret-access-key: hush",
        "no access\n  s3.secret-access-key: 'a hush'\n",
        "Authorization: Bearer hush",
        r'answer: "{\"token\":\"hush\"}"',
        '{"password": hush}',
        "jdbc:postgresql://host/db?user=me&password=a b hush",
        "jdbc:postgresql://host/db?password=a b hush&user=me is wrong",
        "no driver for jdbc:sqlserver://host;password=a hush;user=me: 08001",
    ],
)
def test_secrets_that_a_text_names_itself_are_hidden(text: str) -> None:
    assert "hush" not in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "NoCredentialsError: Unable to locate credentials",
        "botocore.exceptions.TokenRetrievalError: none",
        "ExpiredTokenException: it has expired",
        "the token has expired, and the password is wrong",
        "(1): no such table: tokens",
    ],
)
def test_a_text_that_only_speaks_of_secrets_is_kept(text: str) -> None:
    assert redact(text) == text


def test_what_comes_after_the_clause_of_an_address_is_kept() -> None:
    address = "jdbc:postgresql://host/db?password=a hush"
    for end in (", then it failed", ": it failed", ". It failed", "\nIt failed", " (it failed)"):
        assert redact(f"opening {address}{end}") == f"opening jdbc:postgresql://host/db{end}"


def test_a_password_out_of_an_address_is_hidden_wherever_a_text_has_it() -> None:
    url = "jdbc:postgresql://me:pa%20hush@host/db?sslpassword=silent"
    text = redact("neither 'pa hush' nor pa%20hush nor silent is right", {"uri": url})
    assert text == "neither '*****' nor ***** nor ***** is right"


def test_a_cause_that_shows_a_secret_is_left_out_of_the_traceback() -> None:
    def fail(properties: dict[str, str]) -> str:
        try:
            try:
                raise ValueError("with hush")
            except ValueError as error:
                raise OSError("no access") from error
        except OSError as error:
            try:
                raise RuntimeError("failed") from shown_cause(error, properties)
            except RuntimeError as raised:
                return "".join(traceback.format_exception(raised))

    assert "with hush" in fail({"name": "hush"})
    assert "hush" not in fail({"password": "hush"})


SECRET = "hush-4711-hush"


def test_messages_hide_secret_properties_and_passwords_in_addresses() -> None:
    properties = {"s3.secret-access-key": SECRET, "warehouse": "s3://bucket"}
    message = (
        f"no access to s3://bucket with {SECRET} from postgresql://me:{SECRET[:4]}@host/db"
        "?password=x1"
    )
    shown = redact(message, properties)
    assert "s3://bucket" in shown
    assert SECRET[:4] not in shown
    assert "me" not in shown.partition("postgresql")[2]
    assert "x1" not in shown
