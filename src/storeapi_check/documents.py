"""Strict JSON, and a list of stores that is parsed as it arrives."""

import codecs
import json
from collections.abc import Callable
from typing import Any

Store = dict[str, Any]
MAX_STORE_LENGTH = 1 << 20  # characters of a store in a list
MAX_KEPT = 10_000  # stores of a list that are kept


class Malformed(ValueError):
    """The JSON is not as expected: the message says why."""


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; refuse a repeated key, which would hide one property behind another."""
    if len(dict(pairs)) != len(pairs):
        raise Malformed("an object has the same key twice")
    return dict(pairs)


def constant(name: str) -> Any:
    """Refuse NaN and the infinities, which are not JSON (RFC 8259 section 6)."""
    raise Malformed(f"{name} is not JSON")


DECODER = json.JSONDecoder(object_pairs_hook=unique, parse_constant=constant)


def attempt(read: Callable[..., Any], *content: Any) -> tuple[Any, str | None]:
    """Return what `read` returns, and None; if the JSON is not as expected, None and the fault
    in plain words."""
    try:
        return read(*content), None
    except UnicodeDecodeError:
        return None, "the body is not UTF-8"
    except Malformed as error:
        return None, str(error)
    except (ValueError, RecursionError) as error:
        return None, f"the body is not JSON: {error}"


def parse(content: bytes) -> tuple[Any, str | None]:
    """Return the JSON value of a body, and None; if it is not JSON in UTF-8, None and the fault."""
    return attempt(lambda: DECODER.decode(content.decode()))


class Listing:
    """A JSON array that is fed in pieces.

    `stores` has the stores to keep, `shapes` one store of each shape. If it is not an array of
    stores, `fault` says why.
    """

    def __init__(self, keep: Callable[[Store], bool]) -> None:
        self.keep = keep
        self.count = 0
        self.text = ""
        self.stores: list[Store] = []
        self.shapes: dict[tuple[Any, ...], Store] = {}
        self.fault: str | None = None
        self.decode = codecs.getincrementaldecoder("utf-8")().decode

    def feed(self, piece: bytes, last: bool = False) -> None:
        """Parse the next piece; after a fault, ignore it."""
        if self.fault is None:
            _, self.fault = attempt(self.finish if last else self.advance, piece)

    def advance(self, piece: bytes) -> None:
        """Take all complete stores that are followed by a comma; keep the rest as a new array."""
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
                    # The cut was within a store; up to the error, the text is well-formed.
                    end = min(end, error.pos)
        if len(self.text) > MAX_STORE_LENGTH:
            raise Malformed("the body is not a JSON array of objects")

    def finish(self, piece: bytes) -> None:
        """Take the remaining stores."""
        stores = DECODER.decode(self.text + self.decode(piece, True))
        if not stores and self.count:
            raise Malformed("the body is not a JSON array of objects")  # it ends after a comma
        self.take(stores)

    def take(self, stores: Any) -> None:
        """Count stores, remember their shapes and keep those that are wanted."""
        if not isinstance(stores, list) or not all(isinstance(store, dict) for store in stores):
            raise Malformed("the body is not a JSON array of objects")
        self.count += len(stores)
        for store in stores:
            types = tuple(type(store.get(key)) for key in ("id", "name", "address"))
            # Stores of one shape keep or break the same rules.
            self.shapes.setdefault(tuple(store) + types, store)
            if self.keep(store) and len(self.stores) < MAX_KEPT:
                self.stores.append(store)
