"""JSON read strictly, and a list of stores read as it arrives; the standard library only."""

import codecs
import json
from collections.abc import Callable
from typing import Any

Store = dict[str, Any]
MAX_STORE_LENGTH = 1 << 20  # characters of a store in a list
MAX_KEPT = 10_000  # stores of a list that are kept


class Malformed(ValueError):
    """Not the JSON that was expected: the reason is the message."""


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; a repeated key is an error, or a property could hide behind another."""
    if len(dict(pairs)) != len(pairs):
        raise Malformed("an object has the same key twice")
    return dict(pairs)


def constant(name: str) -> Any:
    """Refuse NaN and the infinities: JSON has none (RFC 8259 section 6)."""
    raise Malformed(f"{name} is no JSON")


DECODER = json.JSONDecoder(object_pairs_hook=unique, parse_constant=constant)


def attempt(read: Callable[..., Any], *content: Any) -> tuple[Any, str | None]:
    """Return what `read` returns, and None; or None and the fault, in plain words, if the JSON
    is not as expected."""
    try:
        return read(*content), None
    except UnicodeDecodeError:
        return None, "the body is not UTF-8"
    except Malformed as error:
        return None, str(error)
    except (ValueError, RecursionError) as error:
        return None, f"the body is not JSON: {error}"


def parse(content: bytes) -> tuple[Any, str | None]:
    """Return the one JSON value of a body, and None; or None and the fault if it is not JSON in
    UTF-8."""
    return attempt(lambda: DECODER.decode(content.decode()))


class Listing:
    """A JSON array fed in pieces: `stores` has those to keep, `shapes` one of each shape,
    `fault` why it is none."""

    def __init__(self, keep: Callable[[Store], bool]) -> None:
        self.keep, self.count, self.text = keep, 0, ""
        self.stores: list[Store] = []
        self.shapes: dict[tuple[Any, ...], Store] = {}
        self.fault: str | None = None
        self.decode = codecs.getincrementaldecoder("utf-8")().decode

    def feed(self, piece: bytes, last: bool = False) -> None:
        """Read on; after a fault the rest is passed over."""
        if self.fault is None:
            _, self.fault = attempt(self.finish if last else self.advance, piece)

    def advance(self, piece: bytes) -> None:
        """Take all complete stores that a comma follows; keep the rest, as an array of its own."""
        self.text += self.decode(piece)
        end = len(self.text)
        while (end := self.text.rfind("}", 0, end)) > 0:
            rest = self.text[end + 1 :].lstrip(" \t\n\r")
            if rest.startswith(","):
                try:
                    self.take(DECODER.decode(f"{self.text[: end + 1]}]"))
                    self.text = f"[{rest[1:]}"
                    break
                except json.JSONDecodeError as error:
                    end = min(
                        end, error.pos
                    )  # the cut was within a store: the text is well-formed up to there
        if len(self.text) > MAX_STORE_LENGTH:
            raise Malformed("the body is no JSON array of objects")

    def finish(self, piece: bytes) -> None:
        """Take the stores that are left."""
        stores = DECODER.decode(self.text + self.decode(piece, True))
        self.take(
            stores or (None if self.count else stores)
        )  # after a comma, an empty rest is malformed

    def take(self, stores: Any) -> None:
        """Count stores, remember their shapes and keep those that are wanted."""
        if not isinstance(stores, list) or not all(isinstance(store, dict) for store in stores):
            raise Malformed("the body is no JSON array of objects")
        self.count += len(stores)
        for store in stores:
            kinds = (type(store.get(key)) for key in ("id", "name", "address"))
            self.shapes.setdefault(
                (*store, *kinds), store
            )  # the same rules hold or break for all of one shape
            if self.keep(store) and len(self.stores) < MAX_KEPT:
                self.stores.append(store)
