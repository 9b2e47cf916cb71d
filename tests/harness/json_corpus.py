"""Bodies made to break a JSON parser, which no parser should accept."""

LIMIT = 2**20
"""The longest body in bytes."""

DIGITS = b"9" * 5000


def fill(frame: bytes, unit: bytes, end: bytes = b"") -> bytes:
    """Repeat `unit` at the %b of `frame` until the body has its greatest length; repeat `end` as
    often."""
    count = (LIMIT - len(frame) + 2) // len(unit + end)
    return frame % (unit * count + end * count)


BOMBS = {
    "arrays": fill(b"%b", b"["),
    "arrays that end": fill(b"%b", b"[", b"]"),
    "objects": fill(b"%b", b'{"a":'),
    "arrays in a key that is ignored": fill(b'{"name":"A","other":%b}', b"[", b"]"),
    "arrays in the name": fill(b'{"name":%b}', b"[", b"]"),
    "an open string": fill(b'{"name":"%b', b"x"),
    "nulls": fill(b"%b", b"\0"),
    "blanks": fill(b"%b", b" "),
}

ENCODINGS = {
    "UTF-16, big end first, with its mark": b"\xfe\xff" + '{"name":"A"}'.encode("utf-16-be"),
    "UTF-32, big end first": '{"name":"A"}'.encode("utf-32-be"),
    "two marks": b'\xef\xbb\xbf\xef\xbb\xbf{"name":"A"}',
    "Latin-1": '{"name":"Caf\xe9"}'.encode("latin-1"),
    "an overlong quote": b'{"name":"A\xc0\xa2}',
    "an overlong null": b'{"name":"A\xc0\x80"}',
    "5 bytes": b'{"name":"\xf8\x88\x80\x80\x80"}',
    "nothing but a continuation": b'{"name":"\x80"}',
    "a character that is cut short": b'{"name":"\xe2\x82"}',
    "surrogates as bytes": b'{"name":"\xed\xa0\xbd\xed\xb8\x80"}',
    "a key that is not UTF-8": b'{"\xff":1,"name":"A"}',
}

SURROGATES = {
    "a first half and a letter": b'{"name":"\\ud83dx"}',
    "a first half and a tab": b'{"name":"\\ud83d\\t"}',
    "a second half in capitals": b'{"name":"\\uDE00"}',
    "a half in a list": b'{"name":"A","other":["\\ud83d"]}',
    "a half in a value that a later one replaces": b'{"name":"\\ud83d","name":"A"}',
}

GRAMMAR = {
    "a bracket behind an object": b'{"name":"A"}]',
    "a comment before": b'/**/{"name":"A"}',
    "two commas": b'{"name":"A",,"address":"B"}',
    "a comma at the end of a list": b'{"name":"A","other":[1,]}',
    "no colon": b'{"name" "A"}',
    "a number as key": b'{1:2,"name":"A"}',
    "None": b'{"name":"A","other":None}',
    "Infinity": b'{"name":"A","other":Infinity}',
    "a number that ends in a point": b'{"name":"A","other":1.}',
    "1_000": b'{"name":"A","other":1_000}',
    "digits of another script": '{"name":"A","other":\u0661}'.encode(),
    "an escape that there is not": b'{"name":"\\a"}',
    "an escape that is cut short": b'{"name":"\\u00"}',
    "a backslash before the end": b'{"name":"A\\"}',
    "5,000 digits and no end": b'{"name":"A","other":' + DIGITS,
    "a JSON text sequence": b'\x1e{"name":"A"}\n',
    **{f"a raw U+{code:04X} in a string": b'{"name":"A%c"}' % code for code in range(32)},
}

NO_JSON = {**BOMBS, **ENCODINGS, **SURROGATES, **GRAMMAR}
