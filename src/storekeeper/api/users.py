"""The user whom a trusted proxy names in the head of a request (decision 58)."""

import unicodedata

from storekeeper.domain.errors import InvalidInput
from storekeeper.domain.reasons import Reason, Violation
from storekeeper.http.response import Fields

MAX_USER_LENGTH = 100
"""Characters of the name of a user."""

_RULE = f"must be given once, and be 1 to {MAX_USER_LENGTH} characters of UTF-8 without controls"


def read_user(header: bytes, headers: Fields) -> str | None:
    """Return the user whom a head names in this field, None if it names none; raise InvalidInput
    if it does not name one user."""
    values = [value.strip(b" \t") for name, value in headers if name == header]
    if not values:
        return None
    user = _decoded(values[0])
    if len(values) > 1 or not 1 <= len(user) <= MAX_USER_LENGTH:
        violation = Violation(Reason.MALFORMED, _RULE)
        raise InvalidInput("headers", {header.decode(): violation})
    return user


def _decoded(value: bytes) -> str:
    """Return the text of a value, "" if it is not UTF-8 or has a control character."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return ""
    controls = [each for each in text if unicodedata.category(each) in ("Cc", "Zl", "Zp")]
    return "" if controls else text
