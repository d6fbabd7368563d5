"""`warpfuse serve` at its limits: full queues, clients that are slow or go away, a model that fails, and the end."""

import signal
import socket
import time
import unittest

from cli_bundles import cycle, fused, undefined
from host_program import HostTestCase
from serve_client import Server, read_all


LONG = {"prompt": "x", "max_tokens": 250, "n": 128, "temperature": 0}  # n keeps the row in use: a choice after the other


class Limits(HostTestCase):
    def test_closed_connections_free_their_rows(self):
        server = Server(fused, "--batch", "1", "--queue", "2")
        self.assertEqual(server.metric("rows_in_use"), 0)
        for stream in (False, True):
            running = server.post(LONG | {"stream": stream})
            server.wait_for("rows_in_use", 1)
            queued = server.post(LONG | {"stream": stream})
            server.wait_for("queue_length", 2)
            response, data = server.request("POST", "/v1/completions", {"prompt": "x"})
            self.assertEqual((response.status, response.headers["Retry-After"]), (429, "1"), data)
            queued.close()
            server.wait_for("queue_length", 1)
            running.close()
            server.wait_for("queue_length", 0)
            server.wait_for("rows_in_use", 0)
        self.assertEqual(server.metric('requests_total{outcome="cancelled"}'), 4)
        self.assertEqual(server.metric('requests_total{outcome="refused"}'), 2)
        self.assertEqual(server.end(), (0, b""))

    def test_a_reader_that_reads_nothing_holds_nobody(self):
        server = Server(cycle, "--batch", "2")
        sleepers = [server.post({"prompt": "x", "max_tokens": 250, "n": 40, "stream": True, "temperature": 0}) for _ in range(4)]
        self.assertEqual(len(server.texts(prompt="x", max_tokens=5, temperature=0)), 1)
        for sleeper in sleepers:
            sleeper.close()
        self.assertEqual(server.end(), (0, b""))

    def test_clients_that_come_at_once_need_not_come_again(self):
        server = Server(cycle, "--batch", "8")
        server.process.send_signal(signal.SIGSTOP)  # so that nothing is accepted meanwhile
        connections = []
        try:
            for _ in range(100):  # each fails in time where the kernel lets no more wait
                connections.append(socket.create_connection(("127.0.0.1", server.port), timeout=1))
        finally:
            server.process.send_signal(signal.SIGCONT)
        for connection in connections:
            connection.settimeout(60)
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        for connection in connections:
            self.assertTrue(read_all(connection).startswith(b"HTTP/1.1 200"))
        self.assertEqual(server.end(), (0, b""))

    def test_slow_senders_are_dropped(self):
        server = Server(cycle, "--timeout-s", "1")
        connection = server.send(b"POST /v1/completions HTTP/1.1\r\nHost: local")
        start = time.monotonic()
        for _ in range(3):
            time.sleep(0.4)
            try:
                connection.sendall(b"h")
            except ConnectionError:
                break
        self.assertNotIn(b"200 OK", read_all(connection))
        self.assertLess(time.monotonic() - start, 10)
        self.assertEqual(server.end(), (0, b""))

    def test_a_nan_fails_its_request_alone(self):
        server = Server(undefined)
        for _ in range(2):
            status, answer = server.complete(prompt="x", max_tokens=9, temperature=0)
            self.assertEqual((status, answer["error"]["message"]), (500, "the model gave a NaN logit"))
        self.assertEqual(server.end(), (0, b""))

    def test_sigterm_lets_requests_end(self):
        server = Server(fused, "--batch", "4")
        connection = server.post(LONG | {"max_tokens": 200}, "Connection: close\r\n")
        server.wait_for("rows_in_use", 4)
        server.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 30
        while server.request("GET", "/health")[0].status == 200:
            self.assertLess(time.monotonic(), deadline)
        status, answer = server.complete(prompt="x")
        self.assertEqual((status, answer["error"]["message"]), (503, "the server is shutting down"))
        self.assertIn(b'"completion_tokens":25600', read_all(connection))
        self.assertEqual(server.process.wait(30), 0)
        server.process.communicate()

    def test_requests_that_take_too_long_after_sigterm_are_failed(self):
        server = Server(fused, "--batch", "1", "--timeout-s", "1")
        connection = server.post(LONG)
        server.wait_for("rows_in_use", 1)
        server.process.send_signal(signal.SIGTERM)
        answer = read_all(connection)
        self.assertTrue(answer.startswith(b"HTTP/1.1 500"), answer)
        self.assertIn(b"the server is shutting down", answer)
        self.assertEqual(server.process.wait(30), 0)
        server.process.communicate()

    def test_a_stream_whose_reader_is_behind_at_sigterm_is_sent_to_its_end(self):
        server = Server(cycle)
        asked = {"prompt": "x", "max_tokens": 250, "n": 128, "logprobs": 5, "stream": True, "temperature": 0}
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that most of it stays with the server
            connection.settimeout(60)
            connection.connect(("127.0.0.1", server.port))
            connection.sendall(server.request_of(asked, "Connection: close\r\n"))
            server.wait_for("tokens_total", 128 * 250)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(1)
            self.assertIsNone(server.process.poll())
            answer = read_all(connection)
        self.assertEqual(answer.count(b'"finish_reason":"length"'), 128)
        self.assertIn(b"data: [DONE]", answer[-30:])
        self.assertEqual(server.process.wait(30), 0)
        server.process.communicate()

    def test_a_second_sigterm_ends_at_once(self):
        for running, data in (
            (1, Server.request_of(LONG)),
            (0, b"POST /v1/completions HTTP/1.1\r\nHost: local"),  # the rest of which the server would wait for
        ):
            with self.subTest(running=running):
                server = Server(fused, "--batch", "1")
                connection = server.send(data)
                server.wait_for("rows_in_use", running)
                server.process.send_signal(signal.SIGTERM)
                time.sleep(0.5)
                server.process.send_signal(signal.SIGTERM)
                self.assertEqual(server.process.wait(5), 130)
                server.process.communicate()
                connection.close()


if __name__ == "__main__":
    unittest.main()
