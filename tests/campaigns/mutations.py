"""Good and hostile requests, each damaged a little, for `fuzz_http.py`; a seed and a number
identify a case."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random

Mutation = Callable[[Random, bytes, Sequence[bytes]], bytes]
"""Makes a request worse; what it takes from other requests comes from the last argument."""


class End(Enum):
    """What the client does after it has sent everything."""

    WAITS = "waits"
    HALF_CLOSES = "closes its sending side"
    LEAVES = "leaves"


@dataclass(frozen=True)
class Case:
    """What one connection sends: this many requests, in these pieces. `name` is the seed and the
    number."""

    name: str
    count: int
    pieces: list[bytes]
    end: End

    @property
    def sent(self) -> bytes:
        return b"".join(self.pieces)


NUMBERS = (
    *(
        b"0",
        b"00",
        b"1",
        b"-1",
        b"+1",
        b"01",
        b"1_0",
        b"0x10",
        b"1e3",
        b"1.0",
        b"",
        b" ",
        b"1 1",
        b"1,1",
        b"1;1",
    ),
    *(
        b"a",
        b"g",
        b"ff",
        b"7fffffff",
        b"ffffffffffffffff",
        b"10000000000000000",
        b"1048576",
        b"1048577",
        b"2147483648",
    ),
    *(
        b"4294967296",
        b"9223372036854775807",
        b"9223372036854775808",
        b"18446744073709551616",
        b"9" * 400,
    ),
)
TOKENS = (
    *(
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b"\r",
        b"\0",
        b"\t",
        b" ",
        b":",
        b"\xff",
        b"\x80",
        b"\x7f",
        b"0\r\n\r\n",
    ),
    *(b"HTTP/1.0", b"HTTP/1.1", b"HTTP/2.0", b"GET ", b"HEAD ", b"PUT ", b"CONNECT "),
    *(b"*", b"//", b"http://a/", b"%00", b"%2F", b"..", b"#"),
)
FIELDS = (
    *(
        b"Host: a",
        b"Host:",
        b"Host: a,b",
        b"Connection: close",
        b"Connection: keep-alive",
        b"Expect: 100-continue",
    ),
    *(
        b"Content-Length: 0",
        b"Content-Length: 5",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: x",
    ),
    *(
        b"Connection: upgrade\r\nUpgrade: h2c",
        b"Content-Type: text/plain",
        b"Content-Encoding: gzip",
    ),
    *(b" folded", b"X", b"X : y", b"X: \xff", b"X: " + b"y" * 17_000, b"\r\n".join([b"a:b"] * 101)),
)
_NUMBER = re.compile(rb"\d+|(?<=\n)[0-9a-fA-F]+(?=\r)")


def _span(random: Random, data: bytes) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    return start, min(len(data), start + random.choice((1, 1, 2, 4, 16, 64)))


def flip(random: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def replace(random: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + random.randbytes(1) + data[at + 1 :]


def insert(random: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.choice(TOKENS) + data[at:]


def delete(random: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    start, end = _span(random, data)
    return data[:start] + data[end:]


def duplicate(random: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    start, end = _span(random, data)
    return data[:end] + data[start:]


def splice(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = random.choice(others)
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other) + 1) :]


def repeat_field(random: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    lines = data.split(b"\r\n")
    at = random.randrange(len(lines))
    return b"\r\n".join([*lines[: at + 1], *lines[at:]])


def swap_lines(random: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    lines = data.split(b"\r\n")
    one, other = random.randrange(len(lines)), random.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"\r\n".join(lines)


def add_field(random: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    line, end, rest = data.partition(b"\r\n")
    return line + end + random.choice(FIELDS) + end + rest


def change_number(random: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    found = list(_NUMBER.finditer(data[:4096]))
    if not found:
        return data
    start, end = random.choice(found).span()
    if end - start < 20 and random.random() < 0.3:
        changed = b"%d" % (int(data[start:end], 16) + random.choice((-1, 1)))
    else:
        changed = random.choice(NUMBERS)
    return data[:start] + changed + data[end:]


def change_line_end(random: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    ends = [at for at in range(len(data)) if data.startswith(b"\r\n", at)]
    if not ends:
        return data
    at = random.choice(ends)
    return data[:at] + random.choice((b"\n", b"\r", b"\r\r\n", b"\r\n\r\n", b"")) + data[at + 2 :]


def cut(random: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    return data[: random.randrange(1, len(data) + 1)]


MUTATIONS: tuple[Mutation, ...] = (
    *(flip, replace, insert, delete, duplicate, splice, repeat_field, swap_lines, add_field),
    *(change_number, change_number, change_line_end, cut),
)


class Cases:
    """Makes cases from a corpus; most of its large requests are seldom used, because they take
    long."""

    def __init__(self, corpus: Sequence[bytes], seed: int) -> None:
        self._small = [data for data in corpus if len(data) <= 2048]
        self._large = [data for data in corpus if len(data) > 2048]
        self._seed = seed

    def __getitem__(self, number: int) -> Case:
        name = f"{self._seed}/{number}"
        random = Random(name)
        count = 100 if random.random() < 0.002 else random.choice((1, 1, 1, 2, 2, 3, 5))
        requests = [self._request(random) for _ in range(count)]
        end = End.HALF_CLOSES if random.random() < 0.2 else End.WAITS
        return Case(name, count, pieces(random, requests), end)

    def _request(self, random: Random) -> bytes:
        data = random.choice(self._large if random.random() < 0.002 else self._small)
        for _ in range(random.choice((0, 0, 1, 1, 1, 2, 3))):
            data = random.choice(MUTATIONS)(random, data, self._small) or data
        return data


def pieces(random: Random, requests: list[bytes]) -> list[bytes]:
    """Cut as a client or a network might: between requests, nowhere, here and there, or after each
    byte."""
    data = b"".join(requests)
    if random.random() < 0.25:
        return requests
    if random.random() < 0.02 and len(data) < 500:
        return [data[at : at + 1] for at in range(len(data))]
    cuts = sorted(
        random.randrange(len(data) + 1) for _ in range(random.choice((0, 0, 0, 1, 1, 2, 5)))
    )
    return [
        data[start:end]
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)
        if start < end
    ]
