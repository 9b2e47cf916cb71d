"""A second reading of If-Match and If-None-Match, character by character, from RFC 9110.

    If-Match   = "*" / [ entity-tag *( OWS "," OWS entity-tag ) ]        (13.1.1)
    entity-tag = [ %s"W/" ] DQUOTE *( %x21 / %x23-7E / %x80-FF ) DQUOTE  (8.8.3)

Empty elements of a list are accepted (5.6.1.2).
"""

from enum import Enum, auto

MARKS = ("-gzip", "-br", "-zstd", "-deflate", ";gzip")
"""What compressing proxies append to a tag (decision 33)."""


class State(Enum):
    """What the next character may be part of."""

    ELEMENT = auto()
    WEAK = auto()
    QUOTE = auto()
    TAG = auto()
    COMMA = auto()


def read(lines: list[bytes]) -> set[str] | None:
    """Return the tags of a field's lines with their quotes and without marks, `{"*"}` for any, None
    if malformed."""
    text = ", ".join(line.decode("latin-1") for line in lines)
    if text.strip(" \t") == "*":
        return {"*"}
    tags: set[str] = set()
    state, tag = State.ELEMENT, ""
    for character in text:
        following = step(state, character)
        if following is None:
            return None
        if state is State.TAG and following is State.TAG:
            tag += character
        elif state is State.TAG:
            tags.add('"' + unmarked(tag) + '"')
            tag = ""
        state = following
    return tags if state in (State.ELEMENT, State.COMMA) else None


def step(state: State, character: str) -> State | None:
    """Return the state after a character; None if the character is not allowed there."""
    if state is State.TAG:
        if character == '"':
            return State.COMMA
        return (
            State.TAG
            if character == "!" or "#" <= character <= "~" or "\x80" <= character <= "\xff"
            else None
        )
    if state is State.WEAK:
        return State.QUOTE if character == "/" else None
    if state is State.QUOTE:
        return State.TAG if character == '"' else None
    if character in " \t":
        return state
    if character == ",":
        return State.ELEMENT
    if state is State.ELEMENT:
        return {"W": State.WEAK, '"': State.TAG}.get(character)
    return None


def unmarked(tag: str) -> str:
    """Return a tag without the mark at its end, if there is one."""
    for mark in MARKS:
        if tag.endswith(mark):
            return tag[: -len(mark)]
    return tag
