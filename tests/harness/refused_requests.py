"""Requests as raw bytes that the HTTP layer refuses, and similar ones that it accepts (decision
27)."""

from tests.harness.wire import HOST, create

POST = b"POST /api/stores HTTP/1.1\r\n"
BODY = b'{"name":"Never"}'
SMUGGLED = create("Never")
LENGTH = b"Content-Length: 16\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
IN_CHUNKS = b"10\r\n" + BODY + b"\r\n0\r\n\r\n"


def get(target: bytes = b"/test", version: bytes = b"HTTP/1.1", fields: bytes = HOST) -> bytes:
    return b"GET " + target + b" " + version + b"\r\n" + fields + b"\r\n"


def with_host(value: bytes) -> bytes:
    return get(fields=b"Host: " + value + b"\r\n")


def post(fields: bytes, body: bytes = BODY) -> bytes:
    return POST + HOST + fields + b"\r\n" + body


def in_chunks(body: bytes, fields: bytes = CHUNKED) -> bytes:
    return post(fields, body)


REFUSED: dict[str, tuple[int, bytes]] = {
    "a NUL before another version": (400, get(b"/te\0st", version=b"HTTP/2.0")),
    "no method before another version": (400, b" HTTP/2.0\r\n" + HOST + b"\r\n"),
    # Not HTTP.
    "nothing but nulls": (400, b"\0" * 64),
    "more nulls than a line may have": (400, b"\0" * 9000),
    "a TLS hello": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x5a" * 100),
    "an SSH client": (400, b"SSH-2.0-OpenSSH_9.2\r\n"),
    "text": (400, b"hello, is anybody there?\r\n\r\n"),
    "JSON": (400, BODY),
    "UTF-16": (400, get().decode().encode("utf-16")),
    "a space before": (400, b" " + get()),
    # The request line (fault table, rows C15, C16, C18).
    "HTTP/2's preface": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "HTTP/2.0": (505, get(version=b"HTTP/2.0")),
    "HTTP/3.0": (505, get(version=b"HTTP/3.0")),
    "HTTP/9.9": (505, get(version=b"HTTP/9.9")),
    "HTTP/0.9": (505, get(version=b"HTTP/0.9")),
    "no version": (400, b"GET /test\r\n\r\n"),
    "HTTP/1": (400, get(version=b"HTTP/1")),
    "HTTP/1.10": (400, get(version=b"HTTP/1.10")),
    "HTTP/11": (400, get(version=b"HTTP/11")),
    "http/1.1": (400, get(version=b"http/1.1")),
    "HTTPS/1.1": (400, get(version=b"HTTPS/1.1")),
    "a word behind the version": (400, get(version=b"HTTP/1.1 x")),
    "RTSP": (400, get(version=b"RTSP/1.0")),
    "a create over RTSP": (400, post(LENGTH).replace(b"HTTP/1.1", b"RTSP/1.1")),
    "Icecast": (400, b"SOURCE /test ICE/1.0\r\n" + HOST + b"\r\n"),
    "an unknown method": (501, b"FOO /test HTTP/1.1\r\n" + HOST + b"\r\n"),
    "a method in small letters": (501, b"get /test HTTP/1.1\r\n" + HOST + b"\r\n"),
    "an overlong method": (501, b"M" * 50 + b" /test HTTP/1.1\r\n" + HOST + b"\r\n"),
    "a method longer than any line": (501, b"M" * 9000 + b" /test HTTP/1.1\r\n" + HOST + b"\r\n"),
    "an overlong method before the longest target": (
        501,
        b"M" * 60 + b" /" + b"t" * 8191 + b" HTTP/1.1\r\n",
    ),
    "a method that begins as a known one": (501, b"GETX /test HTTP/1.1\r\n" + HOST + b"\r\n"),
    "a method of RTSP": (501, b"DESCRIBE /test HTTP/1.1\r\n" + HOST + b"\r\n"),
    "an unknown method and no version": (400, b"FOO /test\r\n\r\n"),
    "no method": (400, b"/test HTTP/1.1\r\n" + HOST + b"\r\n"),
    "no target": (400, b"GET HTTP/1.1\r\n" + HOST + b"\r\n"),
    "a space in the target": (400, get(b"/test /x")),
    "a control character in the target": (400, get(b"/te\x01st")),
    "a null in the target": (400, get(b"/te\0st")),
    "a target without a slash": (400, get(b"test")),
    "* for GET": (400, get(b"*")),
    "a fragment": (400, get(b"/test#top")),
    "an absolute target of another scheme": (400, get(b"ftp://a/test")),
    "an absolute target without a host": (400, get(b"http:///test")),
    "an absolute target with a user": (400, get(b"http://user@a/test")),
    "an absolute target with a user and a password": (400, get(b"http://user:word@a/test")),
    "an absolute target of a user without a host": (400, get(b"http://user@")),
    "CONNECT host": (400, b"CONNECT a:443 HTTP/1.1\r\n" + HOST + b"\r\n"),
    "CONNECT path": (400, b"CONNECT /test HTTP/1.1\r\n" + HOST + b"\r\n"),
    "CONNECT absolute": (400, b"CONNECT http://a/test HTTP/1.1\r\n" + HOST + b"\r\n"),
    "CONNECT with a body": (400, b"CONNECT a:443 HTTP/1.1\r\n" + HOST + LENGTH + b"\r\n" + BODY),
    # Host (row C14).
    "no Host": (400, get(fields=b"")),
    "two Hosts": (400, get(fields=HOST + HOST)),
    "two different Hosts": (400, get(fields=HOST + b"host: b\r\n")),
    "an empty Host": (400, with_host(b"")),
    "a list of Hosts": (400, with_host(b"a,b")),
    "a Host with a user": (400, with_host(b"user@a")),
    "a Host with a path": (400, with_host(b"a/b")),
    "a Host with a space": (400, with_host(b"a b")),
    "a Host with a bad port": (400, with_host(b"a:x")),
    "a Host with two ports": (400, with_host(b"a:1:2")),
    "a Host that is a URL": (400, with_host(b"http://a")),
    "a Host with a bad escape": (400, with_host(b"a%zz")),
    "a Host in open brackets": (400, with_host(b"[::1")),
    "a Host with a null": (400, with_host(b"a\0")),
    "a Host not in ASCII": (400, with_host(b"\xfc")),
    # Field lines (row C12).
    "a space before the colon": (400, post(b"Content-Length : 16\r\n")),
    "a tab before the colon": (400, post(b"Content-Length\t: 16\r\n")),
    "a field without a colon": (400, post(LENGTH + b"Nonsense\r\n")),
    "a field without a name": (400, post(LENGTH + b": x\r\n")),
    "a folded field": (400, post(LENGTH + b"X: a\r\n b\r\n")),
    "a folded first field": (400, POST + b" " + HOST + LENGTH + b"\r\n" + BODY),
    "a null in a value": (400, post(LENGTH + b"X: a\0b\r\n")),
    "a control character in a value": (400, post(LENGTH + b"X: a\x01b\r\n")),
    "a null in a name": (400, post(LENGTH + b"X\0: a\r\n")),
    "a bare CR in a value": (400, post(LENGTH + b"X: a\rb\r\n")),
    "lines that end in LF": (400, (POST + HOST + LENGTH + b"\r\n").replace(b"\r\n", b"\n") + BODY),
    "lines that end in CR": (400, (POST + HOST + LENGTH + b"\r\n").replace(b"\r\n", b"\r") + BODY),
    # Content-Length (row C12).
    "the same length twice": (400, post(LENGTH + LENGTH)),
    "two lengths": (400, post(LENGTH + b"Content-Length: 17\r\n")),
    "a list of lengths": (400, post(b"Content-Length: 16, 16\r\n")),
    "length +16": (400, post(b"Content-Length: +16\r\n")),
    "length -0": (400, post(b"Content-Length: -0\r\n")),
    "length -1": (400, post(b"Content-Length: -1\r\n")),
    "length 0x10": (400, post(b"Content-Length: 0x10\r\n")),
    "length 1_6": (400, post(b"Content-Length: 1_6\r\n")),
    "length 16.0": (400, post(b"Content-Length: 16.0\r\n")),
    "length 1 6": (400, post(b"Content-Length: 1 6\r\n")),
    "length ''": (400, post(b"Content-Length:\r\n")),
    "length in other digits": (400, post("Content-Length: \u0661\u0666\r\n".encode())),
    "a length of 2^20 + 1": (413, post(b"Content-Length: 1048577\r\n")),
    "a length of 2^64": (413, post(b"Content-Length: 18446744073709551616\r\n")),
    "a length of 5,000 digits": (413, post(b"Content-Length: " + b"9" * 5000 + b"\r\n")),
    "a length behind 5,000 zeros": (413, post(b"Content-Length: " + b"0" * 5000 + b"16\r\n")),
    # Transfer-Encoding.
    "a length and chunks": (400, in_chunks(IN_CHUNKS + SMUGGLED, LENGTH + CHUNKED)),
    "chunks and a length": (400, in_chunks(IN_CHUNKS + SMUGGLED, CHUNKED + LENGTH)),
    "chunks and a length of 0": (400, in_chunks(IN_CHUNKS, CHUNKED + b"Content-Length: 0\r\n")),
    "chunks of HTTP/1.0": (400, in_chunks(IN_CHUNKS).replace(b"HTTP/1.1", b"HTTP/1.0")),
    "xchunked": (501, in_chunks(IN_CHUNKS, b"Transfer-Encoding: xchunked\r\n")),
    "chunkedx": (501, in_chunks(IN_CHUNKS, b"Transfer-Encoding: chunkedx\r\n")),
    "chunked, identity": (400, in_chunks(IN_CHUNKS, b"Transfer-Encoding: chunked, identity\r\n")),
    "identity": (501, post(b"Transfer-Encoding: identity\r\n")),
    "gzip, chunked": (501, in_chunks(IN_CHUNKS, b"Transfer-Encoding: gzip, chunked\r\n")),
    "chunked, chunked": (400, in_chunks(IN_CHUNKS, b"Transfer-Encoding: chunked, chunked\r\n")),
    "chunked twice": (400, in_chunks(IN_CHUNKS, CHUNKED + CHUNKED)),
    "chunked in quotes": (400, in_chunks(IN_CHUNKS, b'Transfer-Encoding: "chunked"\r\n')),
    "chunked and a vertical tab": (
        400,
        in_chunks(IN_CHUNKS, b"Transfer-Encoding: \x0bchunked\r\n"),
    ),
    "chunked; x": (400, in_chunks(IN_CHUNKS, b"Transfer-Encoding: chunked;x=1\r\n")),
    "no transfer coding": (400, in_chunks(IN_CHUNKS, b"Transfer-Encoding:\r\n")),
    "a folded transfer coding": (400, in_chunks(IN_CHUNKS, b"Transfer-Encoding:\r\n chunked\r\n")),
    "a transfer coding with a space": (
        400,
        in_chunks(IN_CHUNKS, b"Transfer-Encoding : chunked\r\n"),
    ),
    # Chunks.
    "chunk size +10": (400, in_chunks(b"+" + IN_CHUNKS)),
    "chunk size -10": (400, in_chunks(b"-" + IN_CHUNKS)),
    "chunk size 0x10": (400, in_chunks(b"0x" + IN_CHUNKS)),
    "chunk size 1_0": (400, in_chunks(b"1_0" + IN_CHUNKS[2:])),
    "chunk size ' 10'": (400, in_chunks(b" " + IN_CHUNKS)),
    "chunk size g": (400, in_chunks(b"g\r\n" + BODY + b"\r\n0\r\n\r\n")),
    "no chunk size": (400, in_chunks(b"\r\n" + BODY + b"\r\n0\r\n\r\n")),
    "a chunk size of 2^64": (400, in_chunks(b"10000000000000000\r\n" + BODY)),
    "a chunk size of 2^64 + 16": (
        400,
        in_chunks(b"10000000000000010\r\n" + BODY + b"\r\n0\r\n\r\n"),
    ),
    "a chunk longer than its size": (400, in_chunks(b"0f" + IN_CHUNKS[2:])),
    "a chunk without its end": (400, in_chunks(b"10\r\n" + BODY + b"0\r\n\r\n")),
    "a chunk size that ends in LF": (400, in_chunks(b"10\n" + BODY + b"\r\n0\r\n\r\n")),
    "a chunk that ends in LF": (400, in_chunks(b"10\r\n" + BODY + b"\n0\r\n\r\n")),
    "a bare CR in an extension": (400, in_chunks(b"10;a\rb\r\n" + BODY + b"\r\n0\r\n\r\n")),
    "a null in an extension": (400, in_chunks(b"10;\0\r\n" + BODY + b"\r\n0\r\n\r\n")),
    "a bad trailer": (400, in_chunks(IN_CHUNKS[:-2] + b"Nonsense\r\n\r\n")),
    "a folded first trailer": (400, in_chunks(IN_CHUNKS[:-2] + b" b: c\r\n\r\n")),
    "a trailer without a name": (400, in_chunks(IN_CHUNKS[:-2] + b": x\r\n\r\n")),
    "a folded trailer": (400, in_chunks(IN_CHUNKS[:-2] + b"X: a\r\n b\r\n\r\n")),
}

ACCEPTED: dict[str, bytes] = {
    "an absolute target": get(b"http://a/test"),
    "HTTP/1.2": get(version=b"HTTP/1.2"),
    "HTTP/1.9": get(version=b"HTTP/1.9"),
    "characters that RFC 3986 does not have": get(b'/test?"<>{}|^\\`'),
    "bytes that are not ASCII": get("/test?Köln".encode()),
    "bytes that are not UTF-8": get(b"/test?\x80\xff"),
    "an @ behind the host of an absolute target": get(b"http://a/test?user@b"),
    "an absolute target in capitals": get(b"HTTPS://A:443/test"),
    "a Host with a port": with_host(b"a:8080"),
    "a Host with an empty port": with_host(b"a:"),
    "a Host that is an IPv4 address": with_host(b"127.0.0.1:80"),
    "a Host that is an IPv6 address": with_host(b"[::1]:80"),
    "a Host with an escape": with_host(b"a%2Db"),
    "a chunked body with blanks around": get(fields=HOST + b"Transfer-Encoding:  chunked  \r\n")
    + b"1\r\nx\r\n0\r\n\r\n",
    "trailers that mean something in a head": get(fields=HOST + CHUNKED)
    + b"1\r\nx\r\n0\r\nConnection: close\r\nContent-Length: 9\r\n"
    + b"transfer-encoding: gzip\r\nHost: b\r\nUpgrade: h2c\r\n\r\n",
    "a length with blanks around": get(fields=HOST + b"Content-Length: \t0\t \r\n"),
    "a Host with blanks around": with_host(b" \ta\t "),
    "a Host in capitals": get(fields=b"HOST:A\r\n"),
    "a value not in ASCII": get(fields=HOST + b"X: \xfc\xff\r\n"),
    "an empty value": get(fields=HOST + b"X:\r\nY: \r\n"),
    "empty lines before": b"\r\n\r\n" + get(),
    "a question mark and no query": get(b"/test?"),
    "a length of 0": get(fields=HOST + b"Content-Length: 0\r\n"),
    "a length of 20 zeros": get(fields=HOST + b"Content-Length: " + b"0" * 20 + b"\r\n"),
}
