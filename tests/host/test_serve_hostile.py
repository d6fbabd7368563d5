"""`warpfuse serve` and 2,000 malformed requests: each is answered in the protocol or closed, and the server goes on.

WARPFUSE_LOAD is the share of them that is sent, 0.1 unless given.
"""

import concurrent.futures
import gzip
import http.client
import json
import os
import re
import socket
import struct
import time
import unittest

from cli_bundles import cycle
from hostile_requests import draw_request
from host_program import HostTestCase
from serve_client import Server, ServeTestCase, read_all

REQUESTS = int(2000 * float(os.environ.get("WARPFUSE_LOAD", "0.1")))
TIMEOUT_S = 1
PATIENCE_S = 30  # for a connection to be closed after the last byte of a request


def exchange(server, seed):
    """Sends request number `seed`; what came back until the server closed the connection."""
    data = draw_request(seed)
    received = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as connection:
        try:
            connection.sendall(data)
            if seed % 25 == 1:  # the client goes away with a reset
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return data, received
            if seed % 25:  # every 25th client stays, and the server must end it
                connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                received += part
        except (ConnectionError, OSError) as error:
            assert not isinstance(error, TimeoutError), f"request {seed} was neither answered nor closed"
    return data, received


def responses_in(received):
    """Status and body of each response; those of streams go on to the end."""
    while received:
        head, end, received = received.partition(b"\r\n\r\n")
        assert end, head
        status = int(re.match(rb"HTTP/1\.1 (\d{3}) ", head)[1])
        length = re.search(rb"^Content-Length: (\d+)\r?$", head, re.MULTILINE)
        size = int(length[1]) if length else 0 if status == 100 else len(received)
        assert len(received) >= size, head
        yield status, received[:size]
        received = received[size:]


class Bodies(ServeTestCase):
    """Where a request ends, so that no part of one is taken for another."""

    bundle, arguments = cycle, ()

    def request_of(self, line, headers, body):
        head = f"{line} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    def test_a_body_that_nobody_read_is_no_request(self):
        asked = json.dumps({"prompt": "x", "max_tokens": 2}).encode()
        hidden = self.request_of("POST /v1/completions", "", asked)
        answered = self.server.metric('requests_total{outcome="ok"}')
        for line, headers in (
            ("POST /v1/completions", "Origin: http://evil.example\r\n"), ("POST /v1/completions", "Host: evil.example\r\n"),
            ("GET /health", ""), ("OPTIONS /", ""), ("POST /v1/completions", "Content-Length: 3\r\n"), ("POST /v1/completions", "Content-Length: 3x\r\n"), ("POST /v1/completions", "Transfer-Encoding: identity\r\n"),
            ("POST /v1/completions", "Expect: 100-continue\r\nOrigin: null\r\n"),
        ):  # fmt: skip
            with self.subTest(line=line, headers=headers):
                received = read_all(self.server.send(self.request_of(line, headers, hidden)))
                self.assertNotIn(b"text_completion", received)
        self.assertEqual(self.server.metric('requests_total{outcome="ok"}'), answered)

    def test_connections_are_used_again(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        used = set()
        for method, path, body, status in (
            ("GET", "/health", None, 200), ("POST", "/v1/completions", '{"prompt": "x", "max_tokens": 2}', 200),
            ("POST", "/v1/completions", "{", 400), ("POST", "/nothing", "abc", 404), ("POST", "/v1/completions", None, 400), ("GET", "/", None, 200),
        ):  # fmt: skip
            connection.request(method, path, body)
            used.add(connection.sock)
            response = connection.getresponse()
            self.assertEqual(response.status, status, response.read())
            response.read()
        connection.close()
        self.assertEqual(len(used), 1)

    def test_a_body_without_a_length_is_empty(self):
        connection = self.server.send(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        start = time.monotonic()
        self.assertIn(b"400 Bad Request", read_all(connection))
        self.assertLess(time.monotonic() - start, 5)

    def test_a_body_is_json_whatever_its_type_says(self):
        asked = {"prompt": "x", "max_tokens": 2, "user": "y" * 9000}
        for kind in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", ""):
            response, data = self.server.request("POST", "/v1/completions", asked, {"Content-Type": kind})
            self.assertEqual(response.status, 200, (kind, data))

    def test_a_packed_body_is_not_unpacked(self):
        """A request of 20 KB would take 20 MB, and so on."""
        packed = gzip.compress(json.dumps({"prompt": "x", "user": "y" * 20_000_000}).encode())
        for path in ("/v1/completions", "/nothing"):
            response, data = self.server.request("POST", path, packed, {"Content-Encoding": "gzip"})
            self.assertEqual(response.status, 415, data)
            self.assertIn("Content-Encoding", json.loads(data)["error"]["message"])
        body = json.dumps({"prompt": "x", "max_tokens": 2}).encode()
        self.assertEqual(self.server.request("POST", "/v1/completions", body, {"Content-Encoding": "identity"})[0].status, 200)

    def test_ranges_repeat_nothing(self):
        whole = self.server.request("GET", "/")[1]
        for ranges in ("0-", ",".join(["0-"] * 1000)):
            response, data = self.server.request("GET", "/", headers={"Range": f"bytes={ranges}"})
            self.assertEqual((response.status, data), (200, whole))


class Hostile(HostTestCase):
    def check(self, seed, data, received):
        if data.startswith(b"HEAD"):
            return
        for status, body in responses_in(received):
            if body[:2] == b"\x1f\x8b":  # the request asked for it
                body = gzip.decompress(body)
            message = json.loads(body)["error"]["message"] if status >= 400 else ""
            closed = (status, message) == (500, "the client has closed the connection")  # its half of it
            self.assertTrue(status in (100, 200) or 400 <= status < 500 or closed, (status, body))

    def test_malformed_requests_are_answered_or_closed(self):
        server = Server(cycle, "--timeout-s", TIMEOUT_S)
        answered = 0
        with concurrent.futures.ThreadPoolExecutor(16) as clients:
            for seed, (data, received) in enumerate(clients.map(lambda seed: exchange(server, seed), range(REQUESTS))):
                with self.subTest(seed=seed):
                    self.check(seed, data, received)
                answered += bool(received)
        self.assertGreater(answered, REQUESTS / 3)
        self.assertEqual(server.texts(prompt="x", max_tokens=3, temperature=0), ["é\ufffd"])
        server.wait_for("rows_in_use", 0)
        server.wait_for("queue_length", 0)
        self.assertEqual(server.end(), (0, b""))


if __name__ == "__main__":
    unittest.main()
