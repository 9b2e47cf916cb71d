"""The grammar of If-Match and If-None-Match (RFC 9110, section 13.1). Imports the domain's `Tags`.

`tests/api/test_conditions.py` holds it against a second reading of the grammar, `tests/oracles/entity_tags.py`.
"""

import re
from collections.abc import Iterable

from storekeeper.commands import ANY, Tags

_TAG = rb'(?:W/)?"[!#-~\x80-\xff]*+"'
# Possessive: two commas have one way only to share the blanks between them, so that no list takes long to refuse.
_LIST = re.compile(rb"[ \t]*+(?:%b)?(?:[ \t]*+,[ \t]*+(?:%b)?)*+[ \t]*+" % (_TAG, _TAG))
_OPAQUE = re.compile(r'"[^"]*"')
_COMPRESSED = re.compile(rb'(?:-gzip|-br|-zstd|-deflate|;gzip)(?=")')
"""The mark of a proxy that compressed the content: a tag is meant without it, all ours are strong (decision 33)."""


def parse_tags(values: Iterable[bytes]) -> Tags | None:
    """Return the entity tags in the values of a field's lines, or ANY; None if they break the grammar."""
    value = b", ".join(values)  # RFC 9110, section 5.3
    if _LIST.fullmatch(value):
        if b"-" in value or b";" in value:  # ours have neither
            value = _COMPRESSED.sub(b"", value)
        return frozenset(_OPAQUE.findall(value.decode("latin-1")))
    return ANY if value.strip(b" \t") == b"*" else None
