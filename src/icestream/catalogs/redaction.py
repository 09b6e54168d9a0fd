"""Remove secrets from text: the values of secret properties, and passwords in addresses.

A database address shows only the driver, the hosts with their ports and the database. All other
parts are hidden, because drivers have too many names for a password. A store's address is shown
without user, password and parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote

_HIDDEN = "*****"
_SECRET_NAME = (
    r"(?:secret|passw|passphrase|pwd|token|credential|access[-_.]?key|account[-_.]?key"
    r"|private[-_.]?key|api[-_.]?key|sas\b|signature|connection-string|authorization)"
)
_SECRET = re.compile(rf"(?i){_SECRET_NAME}|^header\.")
_SECRET_KEY = rf"[\w.-]{{0,100}}{_SECRET_NAME}[\w.-]{{0,100}}"

# An address in a text ends at its closing quote or at white space. After a secret parameter it ends
# with the clause, because the secret may contain spaces.
_BEGIN = r"(?:jdbc:[a-z]|[a-z][\w.+-]{0,60}(?::[a-z][\w.+-]{0,60}){0,4}://)"
_CLAUSE_END = r"(?=[,.:;]\s|\s['\"`(\[{]|[\n<>]|['\"`)\]}](?:[\s,.:;)\]}]|$)|$)"
_ADDRESS = re.compile(
    rf"(?i)(?P<quote>['\"`])(?P<quoted>{_BEGIN}.*?)(?P=quote)(?=[\s,.:;)\]}}]|$)"
    rf"|\b(?P<plain>{_BEGIN}(?:[^\s<>]*?[?&;,]{_SECRET_KEY}=(?:\{{[^{{}}]*\}}|.)*?{_CLAUSE_END}"
    rf"|(?:\{{[^{{}}]*\}}|[^\s<>])*))"
)
_AFTER = ")]}'\"`,.;:"
_VALUE = (
    r"(?:(?:bearer|basic)\s+)?"
    r"(?:\{[^{}]*\}|\\?\"[^\"]*\"|\\?'[^']*'|[^&;,\s'\")\]}]+)"
)
# Names of errors before a colon are kept: "NoCredentialsError: none were found".
_PARAMETER = re.compile(
    rf"(?i)((?:^|[?&;,({{\s])"
    rf"(?:{_SECRET_KEY}(?:[ \t]*=|(?<!error)(?<!exception)[ \t]*:)[ \t]*"
    rf"|[\w.-]{{0,100}}(?:\buser|\bsig)=)){_VALUE}"
)
_QUOTED_PARAMETER = re.compile(rf"(?i)((\\?['\"]){_SECRET_KEY}\2\s*[:=]\s*){_VALUE}")
_HEADER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")

# Stores and web addresses. Their path may contain an @.
_STORES = re.compile(
    r"(?:s3[an]?|gc?s|abfss?|wasbs?|adl|az|azure|(?:web)?hdfs|viewfs|file|oss|obs|cosn?|r2|hf|dbfs"
    r"|lakefs|swift|memory|https?|thrift|s?ftp)"
)
_CONTAINER_STORES = frozenset({"abfs", "abfss", "wasb", "wasbs"})  # container@account
_STORE_USER = re.compile(r"[^/@?#]*@")
_STORE_PASSWORD = re.compile(r"[^/:@?#]*:(?!\d+(?:[/?#]|$)).*@", re.DOTALL)
_STORE_PARAMETERS = re.compile(r"[?][\w.%+-]+=")

# Databases: only the matched parts are shown.
_SCHEME = re.compile(r"(?i)((?:jdbc:)?[a-z][\w.+-]*(?::[a-z][\w+-]*)*)://(.*)", re.DOTALL)
_JDBC_WORDS = (
    r"(?:thin|oci8?|kprb|mem|file|zip|res|tds|hsqls?|tcps?|ssl|sequential|loadbalance|replication)"
)
_JDBC = re.compile(rf"(?i)(jdbc:[a-z][\w.+-]*(?::{_JDBC_WORDS}(?=:))*):?(.*)", re.DOTALL)
_EMBEDDED = re.compile(r"(?i)(?:jdbc:)?(?:h2|derby|sqlite|hsqldb|duckdb)\b")
_NAMED = re.compile(r"(?i)jdbc:(?:postgresql|sybase:tds)\b")
_FIRST_PARAMETER = re.compile(r"[?;&,(:/\s][\w.\- %]+=")
_BRACES = re.compile(r"\{[^{}]*\}")
_HOST = r"(?:[\w.-]+|\[[\w.:,-]+\])(?:\\[\w$-]+)?(?::\d+)?"
_NAME = r"[\w.$~%-]+"
_PLACE = re.compile(
    rf"(?:(?:[\w+]+:)?//)?(?P<hosts>{_HOST}(?:,{_HOST})*)?\]?(?=[:/?;,&#()\]]|$)"
    rf"(?:[/:](?P<database>{_NAME}(?:/{_NAME})*)(?![^?;,&#:/()]))?"
)
_PLACE_KEYS = (
    ("hosts", re.compile(r"(?i)(?<![\w.-])(?:host|server|servername)\s*=\s*([\w.-]+)")),
    ("port", re.compile(r"(?i)(?<![\w.-])(?:port|portnumber)\s*=\s*(\d+)")),
    (
        "database",
        re.compile(
            r"(?i)(?<![\w.-])(?:databasename|database|dbname|db|service_name|servicename|sid)"
            r"\s*=\s*([\w.$-]+)"
        ),
    ),
)


def redact(text: str, properties: Mapping[str, str] | None = None) -> str:
    """The text without the values of secret properties and without secrets in addresses.

    Args:
        text: Any text, such as an error message.
        properties: Properties that the text may quote: a catalog's properties, or a reader's
            options. An address among them is recognised in the text whatever characters it has.
    """
    given = [(key, str(value)) for key, value in (properties or {}).items()]
    for _, value in given:
        if _is_address(value):
            text = text.replace(value, without_password(value))
    for value in _secret_values(given):
        text = text.replace(value, _HIDDEN)
    text = _ADDRESS.sub(_shown_match, text)
    text = _QUOTED_PARAMETER.sub(rf"\1{_HIDDEN}", _PARAMETER.sub(rf"\1{_HIDDEN}", text))
    return _HEADER.sub(rf"\1 {_HIDDEN}", text)


def error_text(error: BaseException, properties: Mapping[str, str] | None = None) -> str:
    """The type and the message of an error, without secrets."""
    return f"{type(error).__name__}: {redact(str(error), properties)}"


def shown_cause(
    error: BaseException, properties: Mapping[str, str] | None = None
) -> BaseException | None:
    """The error for `raise ... from`; None if its text or that of a cause contains a secret.

    A traceback also shows the text of causes.
    """
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if redact(text := str(each), properties) != text:
            return None
        left += [each.__cause__, each.__context__]
    return error


def without_password(address: str) -> str:
    """The driver, hosts, ports and database of an address; or a store and the path in it."""
    schemed = _SCHEME.fullmatch(address)
    if schemed is not None and _STORES.fullmatch(schemed[1].lower()):
        return f"{schemed[1]}://{_store_place(schemed[1].lower(), schemed[2])}"
    parts = schemed or _JDBC.fullmatch(address)
    if parts is None:
        return _PARAMETER.sub(rf"\1{_HIDDEN}", address)
    driver, rest = parts.groups()
    if _EMBEDDED.match(driver) and (schemed is None or rest.startswith("/")):
        path = re.split("[?;]", rest)[0]
        return f"{driver}://{path}" if schemed else f"{driver}:{path}"
    hosts, database = _database_place(
        rest, is_place=schemed is not None or bool(_NAMED.match(driver))
    )
    if not hosts and not database:
        return f"{driver}:{_HIDDEN}" if rest.strip("/") else address
    return f"{driver}://{hosts}{'/' if database else ''}{database}"


def _store_place(scheme: str, rest: str) -> str:
    user = _STORE_PASSWORD.match(rest)
    if user is None and scheme not in _CONTAINER_STORES:
        user = _STORE_USER.match(rest)
    place = rest[user.end() :] if user else rest
    parameters = re.search("[?]", place) if "http" in scheme else _STORE_PARAMETERS.search(place)
    return place[: parameters.start()] if parameters else place


def _database_place(rest: str, *, is_place: bool) -> tuple[str, str]:
    """The hosts and the database of an address.

    Args:
        rest: The address without the driver.
        is_place: Whether hosts come first even if there is no user and password before an `@`.
    """
    rest = _BRACES.sub("{}", rest)
    first = _FIRST_PARAMETER.search(rest)
    before = rest[: first.start() + 1] if first else rest
    _, at, place = before.rpartition("@")
    if at or is_place:
        place += rest[len(before) :]
        # In a parameter, or at the end of a password that looks like one.
        if not at and "@" in rest:
            place = place.partition(":")[0] if ":" in before else place
        matched = _PLACE.match(place)
    else:
        matched = None
    hosts, database = matched.groups(default="") if matched else ("", "")
    keyed = {key: pattern.findall(rest) for key, pattern in _PLACE_KEYS}
    if not hosts and keyed["hosts"]:
        hosts = ",".join(keyed["hosts"]) + "".join(f":{port}" for port in keyed["port"][:1])
    return hosts, database or next(iter(keyed["database"]), "")


def _shown_match(match: re.Match[str]) -> str:
    if (quoted := match["quoted"]) is not None:
        return f"{match['quote']}{without_password(quoted)}{match['quote']}"
    plain = match["plain"]
    address = plain.rstrip(_AFTER)
    return without_password(address) + plain[len(address) :]


def _is_address(value: str) -> bool:
    return value.lower().startswith("jdbc:") or "://" in value


def _secret_values(properties: Iterable[tuple[str, str]]) -> list[str]:
    values = {value for each in properties for value in _secrets_of(*each)}
    # Longest first, because one secret may be a part of another.
    return sorted((value for value in values if value), key=len, reverse=True)


def _secrets_of(key: str, value: str) -> Iterator[str]:
    if _SECRET.search(key):
        yield value
    elif _is_address(value):
        if user := re.search(r"://[^:/@]*:([^/]+)@", value):
            yield from (user[1], unquote(user[1]))
        for parameter in _PARAMETER.finditer(value):
            if _SECRET.search(parameter[1]):
                hidden = parameter[0][len(parameter[1]) :]
                yield from (hidden, unquote(hidden))
