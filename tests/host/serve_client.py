"""A running `warpfuse serve` and its clients, for tests."""

import atexit
import http.client
import json
import re
import signal
import socket
import time

from cli_bundles import fused
from host_program import DEVICE, HostTestCase, run_with_plugin, start


class Server:
    def __init__(self, bundle, *arguments):
        self.process = start("serve", "-m", bundle, "--device", DEVICE, "--port", "0", *arguments)
        atexit.register(self.process.kill)  # where a test fails before it ends its server
        line = self.process.stdout.readline().decode()
        self.port = int(re.fullmatch(r"warpfuse: \S+ on http://[\d.]+:(\d+)\n", line)[1])

    def request(self, method, path, body=None, headers={}):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, body if isinstance(body, (bytes, type(None))) else json.dumps(body), headers)
        response = connection.getresponse()
        data = response.read()
        connection.close()
        return response, data

    def complete(self, **parameters):
        response, data = self.request("POST", "/v1/completions", parameters)
        return response.status, json.loads(data)

    def texts(self, **parameters):
        status, answer = self.complete(**parameters)
        assert status == 200, answer
        return [choice["text"] for choice in answer["choices"]]

    def metric(self, name):
        text = self.request("GET", "/metrics")[1].decode()
        return float(re.search(rf"^warpfuse_{re.escape(name)} (\S+)$", text, re.MULTILINE)[1])

    def wait_for(self, name, value):
        deadline = time.monotonic() + 30
        while self.metric(name) != value:
            assert time.monotonic() < deadline, f"{name} is {self.metric(name)}, not {value}"
            time.sleep(0.02)

    def send(self, data):
        """A connection of one's own, with bytes sent on it."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection.sendall(data)
        return connection

    @staticmethod
    def request_of(body, headers="", version="1.1"):
        body = json.dumps(body).encode()
        head = f"POST /v1/completions HTTP/{version}\r\nHost: localhost\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    def post(self, body, headers=""):
        return self.send(self.request_of(body, headers))

    def end(self, patience=60):
        self.process.send_signal(signal.SIGTERM)
        errors = self.process.communicate(timeout=patience)[1]
        return self.process.returncode, errors


def read_all(connection):
    data = b""
    try:
        while part := connection.recv(65536):
            data += part
    except ConnectionError:
        pass
    connection.close()
    return data


def generated(bundle, prompt, *arguments):
    result = run_with_plugin("generate", "-m", bundle, "-p", prompt, "--device", DEVICE, "--no-display-prompt", *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout.decode().removesuffix("\n")


class ServeTestCase(HostTestCase):
    bundle, arguments = fused, ("--batch", "4")

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.bundle, *cls.arguments)

    @classmethod
    def tearDownClass(cls):
        code, errors = cls.server.end()
        assert (code, errors) == (0, b""), (code, errors)
