"""JSON read strictly, and a list of stores read as it arrives; the standard library only."""

import codecs
import json
import re
from collections.abc import Callable
from typing import Any

Store = dict[str, Any]
ITEM = 1 << 20  # the longest single store of a list, in characters
KEPT = 10_000  # the most stores of one list that are kept
BLANK = re.compile(r"[ \t\n\r]*")
MOVES = {("start", "["): "first", ("first", "]"): "end", ("comma", ","): "item", ("comma", "]"): "end"}
"""What follows a sign of the array, by what may stand there."""


class Malformed(ValueError):
    """Not the JSON that was expected: the reason is the message."""


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; a repeated key is an error, or a property could hide behind another."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise Malformed("an object has the same key twice")
    return made


def constant(name: str) -> Any:
    """Refuse NaN and the infinities: JSON has none (RFC 8259 section 6)."""
    raise Malformed(f"{name} is no JSON")


DECODER = json.JSONDecoder(object_pairs_hook=unique, parse_constant=constant)


def parse(content: bytes) -> Any:
    """Return the one JSON value of a body; Malformed when it is none, or is not UTF-8."""
    try:
        return DECODER.decode(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise Malformed("the body is not UTF-8") from None
    except Malformed:
        raise
    except (ValueError, RecursionError) as error:
        raise Malformed(f"the body is not JSON: {error}") from None


def skip_blanks(text: str, at: int) -> int:
    """Return where the blanks that begin at `at` end."""
    found = BLANK.match(text, at)
    return found.end() if found else at


def shape(store: Store) -> tuple[Any, ...]:
    """Return what two stores have in common when the same rules hold or break for both."""
    get = store.get
    return tuple(store), type(get("id")), type(get("name")), type(get("address"))


class Listing:
    """A JSON array of stores, fed in pieces: memory stays that of one store and of what is kept.

    `keep` chooses what `stores` holds, `shapes` has one store of every shape that occurred and `fault` says what
    kept this from being an array of objects.
    """

    def __init__(self, keep: Callable[[Store], bool]) -> None:
        self.keep = keep
        self.count = 0
        self.stores: list[Store] = []
        self.shapes: dict[tuple[Any, ...], Store] = {}
        self.fault: str | None = None
        self.state, self.text, self.one_by_one = "start", "", False
        self.decode = codecs.getincrementaldecoder("utf-8")().decode

    def feed(self, piece: bytes) -> None:
        """Read on; after a fault the rest is passed over."""
        if self.fault is None:
            try:
                self.text, self.one_by_one = self.text + self.decode(piece), False
                self.text = self.text[self.advance() :]
            except UnicodeDecodeError:
                self.fault = "the body is not UTF-8"
            except (ValueError, RecursionError) as error:
                self.fault = str(error)

    def finish(self) -> None:
        """Say that nothing follows."""
        if self.state != "end" or self.text:
            self.fault = self.fault or "the body is not a whole JSON array"

    def advance(self) -> int:
        """Take whole tokens from the front of the text, and return where the unfinished one begins."""
        at = skip_blanks(self.text, 0)
        while at < len(self.text):
            if following := MOVES.get((self.state, self.text[at])):
                self.state, at = following, at + 1
            elif self.state not in {"first", "item"}:
                raise Malformed("the body is not a JSON array" + (" alone" if self.state == "end" else ""))
            elif not (after := self.items(at)):
                break
            else:
                self.state, at = "comma", after
            at = skip_blanks(self.text, at)
        return at

    def items(self, at: int) -> int:
        """Take the objects that begin here, and return where the last one taken ends; 0 when none is whole yet."""
        if self.text[at] != "{":
            raise Malformed("an item of the array is not an object")
        if end := 0 if self.one_by_one else self.text.rfind("},", at) + 1:
            try:
                self.take(DECODER.decode(f"[{self.text[at:end]}]"))  # far quicker than one by one
                return end
            except json.JSONDecodeError:
                self.one_by_one = True  # it may have been cut within a string
        try:
            store, end = DECODER.raw_decode(self.text, at)
        except json.JSONDecodeError as error:
            if len(self.text) - at > ITEM:
                raise Malformed(f"the body is not JSON: {error}") from None
            return 0
        self.take([store])
        return end

    def take(self, stores: list[Any]) -> None:
        """Count stores, remember their shapes and keep those that are wanted."""
        self.count += len(stores)
        for store in stores:
            if not isinstance(store, dict):
                raise Malformed("an item of the array is not an object")
            self.shapes.setdefault(shape(store), store)
            if self.keep(store) and len(self.stores) < KEPT:
                self.stores.append(store)
