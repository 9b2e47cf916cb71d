"""Bodies made to break a JSON parser: what no parser should take. Imports nothing."""

LIMIT = 2**20
"""Bytes that a body may have."""

DIGITS = b"9" * 5000


def fill(frame: bytes, unit: bytes, end: bytes = b"") -> bytes:
    """Repeat `unit` where `frame` has a %b until the body is as long as it may be; `end` is repeated as often."""
    count = (LIMIT - len(frame) + 2) // len(unit + end)
    return frame % (unit * count + end * count)


BOMBS = {
    "arrays": fill(b"%b", b"["),
    "arrays that end": fill(b"%b", b"[", b"]"),
    "objects": fill(b"%b", b'{"a":'),
    "objects of empty keys": fill(b"%b", b'{"":'),
    "both": fill(b"%b", b'[{"a":'),
    "arrays in a key that is ignored": fill(b'{"name":"A","other":%b}', b"[", b"]"),
    "arrays in the name": fill(b'{"name":%b}', b"[", b"]"),
    "arrays behind a number that fits nowhere": fill(b'{"name":"A","more":1e400,"other":%b}', b"[", b"]"),
    "an open string": fill(b'{"name":"%b', b"x"),
    "an open string of backslashes": fill(b'{"name":"%b', b"\\"),
    "nulls": fill(b"%b", b"\0"),
    "blanks": fill(b"%b", b" "),
}

ENCODINGS = {
    "UTF-16, big end first, with its mark": b"\xfe\xff" + '{"name":"A"}'.encode("utf-16-be"),
    "UTF-16, big end first": '{"name":"A"}'.encode("utf-16-be"),
    "UTF-32, little end first": '{"name":"A"}'.encode("utf-32-le"),
    "UTF-32, big end first": '{"name":"A"}'.encode("utf-32-be"),
    "two marks": b'\xef\xbb\xbf\xef\xbb\xbf{"name":"A"}',
    "a mark behind": b'{"name":"A"}\xef\xbb\xbf',
    "nothing but a mark": b"\xef\xbb\xbf",
    "Latin-1": '{"name":"Caf\xe9"}'.encode("latin-1"),
    "an overlong quote": b'{"name":"A\xc0\xa2}',
    "an overlong null": b'{"name":"A\xc0\x80"}',
    "overlong, 3 bytes": b'{"name":"\xe0\x80\xaf"}',
    "overlong, 4 bytes": b'{"name":"\xf0\x80\x80\xaf"}',
    "5 bytes": b'{"name":"\xf8\x88\x80\x80\x80"}',
    "6 bytes": b'{"name":"\xfc\x84\x80\x80\x80\x80"}',
    "nothing but a continuation": b'{"name":"\x80"}',
    "a character that is cut short": b'{"name":"\xe2\x82"}',
    "a character that the end cuts short": b'{"name":"A"}\xe2\x82',
    "surrogates as bytes": b'{"name":"\xed\xa0\xbd\xed\xb8\x80"}',
    "a key that is not UTF-8": b'{"\xff":1,"name":"A"}',
    "not UTF-8 beside a number that fits nowhere": b'{"name":"A","more":1e400,"other":"\xff"}',
}

SURROGATES = {
    "a first half and a letter": b'{"name":"\\ud83dx"}',
    "a first half and a tab": b'{"name":"\\ud83d\\t"}',
    "two first halves": b'{"name":"\\ud83d\\ud83d\\ude00"}',
    "a second half in capitals": b'{"name":"\\uDE00"}',
    "a half in a list": b'{"name":"A","other":["\\ud83d"]}',
    "a half in a key beside a number that fits nowhere": b'{"name":"A","more":1e400,"\\ud83d":1}',
    "a half in a value that a later one replaces": b'{"name":"\\ud83d","name":"A"}',
}

GRAMMAR = {
    "a comma behind an object": b'{"name":"A"},',
    "a bracket behind an object": b'{"name":"A"}]',
    "a comment behind an object": b'{"name":"A"}//',
    "a comment before": b'/**/{"name":"A"}',
    "a hash comment": b'# note\n{"name":"A"}',
    "two commas": b'{"name":"A",,"address":"B"}',
    "a comma alone": b"{,}",
    "a comma at the end of a list": b'{"name":"A","other":[1,]}',
    "no colon": b'{"name" "A"}',
    "no value": b'{"name":}',
    "a number as key": b'{1:2,"name":"A"}',
    "a null as key": b'{null:2,"name":"A"}',
    "capitals": b'{"name":"A","other":True}',
    "None": b'{"name":"A","other":None}',
    "undefined": b'{"name":"A","other":undefined}',
    "Infinity": b'{"name":"A","other":Infinity}',
    "-NaN": b'{"name":"A","other":-NaN}',
    "a number that ends in a point": b'{"name":"A","other":1.}',
    "a number that ends in e": b'{"name":"A","other":1e}',
    "a minus alone": b'{"name":"A","other":-}',
    "-01": b'{"name":"A","other":-01}',
    "1_000": b'{"name":"A","other":1_000}',
    "digits of another script": '{"name":"A","other":\u0661}'.encode(),
    "a blank of another script": '{"name":\u00a0"A"}'.encode(),
    "a form feed between": b'{"name":\x0c"A"}',
    "an escape that there is not": b'{"name":"\\a"}',
    "an escape that is cut short": b'{"name":"\\u00"}',
    "a signed escape": b'{"name":"\\u+041"}',
    "a backslash before the end": b'{"name":"A\\"}',
    "5,000 digits and no end": b'{"name":"A","other":' + DIGITS,
    "a JSON text sequence": b'\x1e{"name":"A"}\n',
    "two lines of JSON": b'{"name":"A"}\n{"name":"B"}\n',
    **{f"a raw U+{code:04X} in a string": b'{"name":"A%c"}' % code for code in range(32)},
}

NO_JSON = {**BOMBS, **ENCODINGS, **SURROGATES, **GRAMMAR}
