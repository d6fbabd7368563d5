"""Requests with faults in headers, JSON, sizes and encodings, drawn by seed; some of them are in order."""

import gzip
import json
import random

PARAMETERS = ["prompt", "max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "n", "stop", "stream", "stream_options",
              "logprobs", "echo", "user", "best_of", "suffix", "logit_bias", "presence_penalty", "model", "bogus", ""]  # fmt: skip
VALUES = [None, True, False, -1, 0, 3, 300, 0.5, 1e300, 2**63, 2**64, "", "x", "é\0\ud800", "x" * 300]
NUMBERS = ["0", "-1", "1e3", "1e999", "0x10", "1.5", "2147483648", "9223372036854775808", "18446744073709551616", "9" * 400,
           "NaN", "-0", "+5", " 7", ""]  # fmt: skip
CODINGS = ["gzip", "br", "deflate", "chunked", "identity", "chunked, chunked", "x"]
METHODS = ["POST"] * 8 + ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "PRI", "post", "", "X" * 9000]
TARGETS = ["/v1/completions"] * 8 + [
    "/", "/metrics", "/health", "/v1/models", "*", "", "//", "/%00", "/%zz", "/%", "/..%2f..", "/?" + "a&" * 4000,
    "/v1/completions?%ff=%", "http://evil.example/", "localhost:80", "/\xff", "/" + "x" * 9000,
]  # fmt: skip
VERSIONS = ["HTTP/1.1"] * 8 + ["HTTP/1.0", "HTTP/2.0", "HTTP/9.9", "HTTP/", "", "HTTP/1.1 x", "http/1.1"]
HEADERS = [
    "Content-Length: {number}", "Content-Length: 5\r\nContent-Length: {number}", "Transfer-Encoding: {coding}",
    "Transfer-Encoding: chunked\r\nContent-Length: {number}", "Content-Encoding: {coding}", "Accept-Encoding: gzip, {junk}",
    "Content-Type: multipart/form-data; boundary={junk}", "Content-Type: multipart/form-data", "Content-Type: {junk}",
    "Content-Type: application/x-www-form-urlencoded", "Expect: 100-continue", "Expect: {junk}", "Range: bytes={number}-{number}",
    "Range: bytes=0-0,1-1,{number}-", "Range: bytes=-", "Range: {junk}", "Connection: {junk}", "Connection: Upgrade\r\nUpgrade: h2c",
    "Host: {junk}", "Host: localhost\r\nHost: evil.example", "Origin: {junk}", "Authorization: Basic {junk}", "{junk}: {junk}",
    "{junk}", ": {junk}", " folded", "X:", "X: {long}", "{long}: x", "Cookie: {junk}", "Keep-Alive: timeout={number}",
    "X-Forwarded-For: {junk}", "REMOTE_ADDR: {junk}", "LOCAL_PORT: {number}", "If-None-Match: *",
]  # fmt: skip
OTHER_PROTOCOLS = [
    b"", b"\0" * 100, b"\r\n" * 50, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"SSH-2.0-x\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
    b"GET / HTTP/1.1\r\n\r\n" * 5, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5,
]  # fmt: skip
POST = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"


def draw_json(draw, depth=0):
    kind = draw.randrange(6 if depth < 4 else 4)
    if kind == 4:
        return [draw_json(draw, depth + 1) for _ in range(draw.randrange(4))]
    if kind == 5:
        return {draw.choice(PARAMETERS): draw_json(draw, depth + 1) for _ in range(draw.randrange(4))}
    return draw.choice(VALUES)


def draw_body(draw):
    asked = {"prompt": "x", "max_tokens": 2} | {draw.choice(PARAMETERS): draw_json(draw) for _ in range(draw.randrange(4))}
    text = json.dumps(asked)
    kind = draw.randrange(8)
    if kind == 0:
        return json.dumps(draw_json(draw)).encode()
    if kind == 1:
        at = draw.randrange(len(text))
        middle = draw.choice([*'{}[]",:\\', "NaN", "//", "\\u", "\\ud800", "\0", "'"])
        return (text[:at] + middle + text[at + draw.randrange(3) :]).encode()
    if kind == 2:
        return text.encode(draw.choice(["utf-16", "utf-32", "utf-7", "utf-8-sig"]))
    if kind == 3:
        return f'{{"prompt": "x", "{draw.choice(PARAMETERS)}": {draw.choice(NUMBERS)}}}'.encode()
    if kind == 4:
        return draw.choice([b'{"prompt": ', b""]) + draw.choice([b"[", b'{"a":', b'["']) * draw.choice([10, 1000, 100_000])
    if kind == 5:
        return gzip.compress(text.encode())
    if kind == 6:
        return b'{"prompt": "%s"}' % draw.randbytes(draw.randrange(20))
    return text.encode()


def draw_chunks(draw, body):
    size = draw.choice([b"%x" % len(body), b"zz", b"-1", b"ffffffffffffffff", b"7fffffffffffffff", b"", b"1;a=b", b"0"])
    return size + draw.choice([b"\r\n", b"\n", b""]) + body + draw.choice([b"\r\n0\r\n\r\n", b"0\r\n\r\n", b"\r\n0\r\nX: y\r\n\r\n", b""])


def draw_head(draw, length):
    def header():
        junk = "".join(chr(draw.randrange(1, 256)) for _ in range(draw.randrange(1, 20)))
        names = {"number": NUMBERS, "coding": CODINGS, "junk": [junk], "long": ["x" * 9000, "x" * 70_000]}
        return draw.choice(HEADERS).format_map({name: draw.choice(values) for name, values in names.items()})

    headers = ["Host: localhost", *(header() for _ in range(draw.choice([0, 1, 1, 2, 3, 200])))]
    if draw.random() < 0.7:
        headers.append(f"Content-Length: {length + draw.choice([0] * 8 + [-1, 1, -length, 10, 1 << 20, 1 << 40])}")
    draw.shuffle(headers)
    start = f"{draw.choice(METHODS)} {draw.choice(TARGETS)} {draw.choice(VERSIONS)}"
    return draw.choice(["\r\n"] * 8 + ["\n", "\r"]).join([start, *headers, "", ""]).encode("latin-1")


def draw_request(seed):
    draw = random.Random(seed)
    kind = draw.randrange(10)
    if kind == 0:
        return draw.choice([*OTHER_PROTOCOLS, draw.randbytes(draw.randrange(5000))])
    body = draw_body(draw)
    if kind == 1:
        data = POST + b"Transfer-Encoding: chunked\r\n\r\n" + draw_chunks(draw, body)
    elif kind < 5:
        data = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    else:
        data = draw_head(draw, len(body)) + body
    data = bytearray(data)
    for _ in range(draw.randint(1, 6) if kind in (4, 5) else 0):  # bytes that are changed, lost or added
        at = draw.randrange(len(data))
        data[at : at + draw.randint(0, 3)] = draw.randbytes(draw.randint(0, 3))
    return bytes(data[: draw.randrange(len(data) + 1)] if kind in (5, 6) else data)
