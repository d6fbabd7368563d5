"""What `warpfuse serve` refuses: wrong requests, other sites, keys that are not its own, and options that it cannot start with."""

import json
import unittest

from cli_bundles import cycle, write
from host_program import MODEL, USAGE, HostTestCase, folder, run_with_plugin
from serve_client import ServeTestCase, Server, read_all


class Refusals(ServeTestCase):
    bundle = cycle

    def test_parameters(self):
        cases = [
            ({}, "prompt"), ({"prompt": 3}, "prompt"), ({"prompt": []}, "prompt"), ({"prompt": ["a", 3]}, "prompt"),
            ({"prompt": [1, "a"]}, "prompt"), ({"prompt": [257]}, "prompt"), ({"prompt": [-1]}, "prompt"),
            ({"prompt": "x" * 257}, "prompt"), ({"max_tokens": "3"}, "max_tokens"), ({"max_tokens": 1.5}, "max_tokens"),
            ({"max_tokens": 0}, "max_tokens"), ({"temperature": -1}, "temperature"), ({"temperature": "hot"}, "temperature"),
            ({"top_p": 0}, "top_p"), ({"top_k": -1}, "top_k"), ({"min_p": 2}, "min_p"), ({"seed": 2**63}, "seed"),
            ({"n": 0}, "n"), ({"n": 1000}, "n"), ({"prompt": ["a"] * 100, "n": 2}, "n"), ({"stop": ""}, "stop"),
            ({"stop": ["a"] * 5}, "stop"), ({"stop": 3}, "stop"), ({"logprobs": 6}, "logprobs"), ({"logprobs": True}, "logprobs"),
            ({"echo": 1}, "echo"), ({"stream": "yes"}, "stream"), ({"stream_options": {}}, "stream_options"),
            ({"stream": True, "stream_options": []}, "stream_options"),
            ({"stream": True, "stream_options": {"bogus": 1}}, "stream_options.bogus"),
            ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
            ({"user": 3}, "user"), ({"best_of": 2}, "best_of"), ({"suffix": "a"}, "suffix"),
            ({"logit_bias": {"1": 2}}, "logit_bias"), ({"presence_penalty": 1}, "presence_penalty"),
            ({"frequency_penalty": 0.5}, "frequency_penalty"), ({"bogus": 1}, "bogus"), ({"model": 3}, "model"),
        ]  # fmt: skip
        for parameters, param in cases:
            with self.subTest(parameters=str(parameters)[:60]):
                given = parameters if param == "prompt" else {"prompt": "x"} | parameters
                status, answer = self.server.complete(**given)
                self.assertEqual(status, 400, answer)
                self.assertEqual(answer["error"]["param"], param)
                self.assertIn(param, answer["error"]["message"])
                self.assertEqual(set(answer["error"]), {"message", "type", "param", "code"})
        noops = {"best_of": 1, "suffix": None, "logit_bias": {}, "presence_penalty": 0.0, "frequency_penalty": 0, "seed": None}
        self.assertEqual(self.server.complete(prompt="x", **noops)[0], 200)
        self.assertEqual(self.server.complete(prompt="x", model="other")[0], 404)

    def test_bodies_and_paths(self):
        for body in (b"", b"{", b"[1]", b'{"prompt": "\xff"}', b"[" * 100_000, b"\0"):
            response, data = self.server.request("POST", "/v1/completions", body)
            self.assertEqual(response.status, 400, data)
            self.assertIn("message", json.loads(data)["error"])
        for method, path in (("POST", "/v1/chat/completions"), ("GET", "/nothing"), ("GET", "/v1/completions")):
            response, data = self.server.request(method, path, {} if method == "POST" else None)
            self.assertEqual(response.status, 404)
            self.assertIn("message", json.loads(data)["error"])
        self.assertEqual(self.server.request("POST", "/v1/completions", b"x" * (1 << 20) + b"x")[0].status, 413)
        body = json.dumps({"prompt": "x", "max_tokens": 3, "temperature": 0}).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        self.assertIn(b"200 OK", read_all(self.server.send(head + chunked)))
        connection = self.server.send(head)
        try:
            for _ in range(40):
                connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        except ConnectionError:
            pass
        self.assertTrue(read_all(connection).startswith(b"HTTP/1.1 413"))
        connection = self.server.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        try:
            for i in range(40):
                connection.sendall(b"".join(b"X-%d: %s\r\n" % (i, b"x" * 2000) for _ in range(40)))
        except ConnectionError:
            pass
        self.assertTrue(read_all(connection).startswith(b"HTTP/1.1 413"))
        self.assertEqual(self.server.request("GET", "/health")[0].status, 200)

    def test_other_sites(self):
        own = f"127.0.0.1:{self.server.port}"
        for headers, status in (
            ({"Host": "evil.example"}, 403), ({"Host": "127.0.0.1.evil.example"}, 403), ({"Host": ""}, 403),
            ({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403), ({"Origin": "http://localhost:1"}, 403),
            ({"Origin": f"http://{own}"}, 200), ({"Host": "localhost"}, 200), ({"Host": "LOCALHOST:80"}, 200),
        ):  # fmt: skip
            response, data = self.server.request("GET", "/v1/models", headers=headers)
            self.assertEqual(response.status, status, (headers, data))


class Start(HostTestCase):
    def test_keys(self):
        server = Server(cycle, "--api-key-file", write("key", "secret\n"))
        for authorization, status in ((None, 401), ("Bearer secreT", 401), ("secret", 401), ("Bearer secret", 200)):
            headers = {"Authorization": authorization} if authorization else {}
            response, data = server.request("GET", "/v1/models", headers=headers)
            self.assertEqual(response.status, status, data)
        self.assertEqual(server.request("GET", "/health")[0].status, 200)
        self.assertEqual(server.end(), (0, b""))

    def test_errors(self):
        server = Server(cycle)
        serve = lambda *arguments: run_with_plugin("serve", "-m", cycle, "--device", "cpu", *arguments)
        self.assert_fails(serve("--port", server.port), USAGE, "--port", server.port, "in use")
        self.assert_fails(serve("--host", "0.0.0.0"), USAGE, "--host 0.0.0.0", "--api-key-file")
        self.assert_fails(serve("--api-key-file", folder / "none"), USAGE, "none")
        self.assert_fails(serve("--api-key-file", write("empty", "\n")), USAGE, "first line is empty")
        for key in ("secret \n", "\tsecret", "sec\0ret"):
            self.assert_fails(serve("--api-key-file", write("unsendable", key)), USAGE, "unsendable", "no key that a client can send")
        self.assert_fails(serve("--port", 70000), USAGE, "--port", "0..65535")
        self.assert_fails(run_with_plugin("serve"), USAGE, "--model is missing")
        self.assert_fails(run_with_plugin("serve", "-m", folder / "none"), MODEL, "none")
        self.assertEqual(server.end(), (0, b""))


if __name__ == "__main__":
    unittest.main()
