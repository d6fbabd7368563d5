"""`warpfuse serve`, spoken to over HTTP: answers equal to `generate`, errors, clients that go away, and the end."""

import concurrent.futures
import contextlib
import http.client
import io
import json
import pathlib
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
import unittest

from cli_bundles import baseline, cycle, ending, folder, fused, undefined
from host_program import HOST, MODEL, PLUGIN, PLUGIN_ERROR, USAGE, HostTestCase, run, run_with_plugin
from toy_bundles import CONTEXT

try:
    import openai
except ImportError:
    openai = None
try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    text_string_to_metric_families = None


class Server:
    def __init__(self, bundle, *arguments):
        command = [HOST, "serve", "-m", bundle, "--device", "cpu", "--plugin", PLUGIN, "--port", "0", *arguments]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
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

    def post(self, body, headers=""):
        body = json.dumps(body).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
        return self.send(head.encode() + body)

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
    result = run_with_plugin("generate", "-m", bundle, "-p", prompt, "--device", "cpu", "--no-display-prompt", *arguments)
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


class Answers(ServeTestCase):
    SAMPLED = {"temperature": 0.9, "top_k": 40, "top_p": 0.95, "min_p": 0.01}
    OPTIONS = ("--temperature", "0.9", "--top-k", "40", "--top-p", "0.95", "--min-p", "0.01")

    def expected(self, prompt, tokens, seed):
        sampled = () if seed is None else (*self.OPTIONS, "--seed", seed)
        return generated(fused, prompt, "-n", tokens, *sampled)

    def test_a_mixed_load_equals_lone_requests(self):
        kinds = [("Hello", 9, None), ("a", 40, 7), ("x" * 200, 30, 3), ("the river", 60, None), ("zz", 25, 2**62)]
        expected = [self.expected(*kind) for kind in kinds]
        order = [index for index in range(len(kinds)) for _ in range(6)]
        random.Random(1).shuffle(order)

        def ask(index):
            prompt, tokens, seed = kinds[index]
            sampled = {"temperature": 0} if seed is None else self.SAMPLED | {"seed": seed}
            return self.server.texts(prompt=prompt, max_tokens=tokens, **sampled)

        with concurrent.futures.ThreadPoolExecutor(16) as clients:
            for index, texts in zip(order, clients.map(ask, order)):
                self.assertEqual(texts, [expected[index]])

    def test_lists_and_choices(self):
        both = self.server.texts(prompt=["Hello", "zz"], max_tokens=12, temperature=0)
        self.assertEqual(both, [generated(fused, prompt, "-n", 12) for prompt in ("Hello", "zz")])
        ids = self.server.texts(prompt=[[*b"Hello"], [*b"zz"]], max_tokens=12, temperature=0)
        self.assertEqual(ids, both)
        self.assertEqual(self.server.texts(prompt=[*b"zz"], max_tokens=12, temperature=0), both[1:])
        choices = self.server.texts(prompt="Hello", max_tokens=12, n=3, seed=7, **self.SAMPLED)
        self.assertEqual(choices[0], self.expected("Hello", 12, 7))
        self.assertEqual(len(set(choices)), 3)
        self.assertEqual(choices, self.server.texts(prompt=["Hello"] * 3, max_tokens=12, seed=7, **self.SAMPLED))

    def test_usage_ends_and_echo(self):
        status, answer = self.server.complete(prompt="Hello", max_tokens=5, temperature=0, echo=True, user="me")
        self.assertEqual(answer["usage"], {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10})
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        self.assertEqual(answer["choices"][0]["text"], "Hello" + generated(fused, "Hello", "-n", 5))
        self.assertEqual((answer["object"], answer["model"]), ("text_completion", "fused"))
        whole = generated(fused, "Hello", "-n", 30)
        stopped = self.server.complete(prompt="Hello", max_tokens=30, temperature=0, stop=["never", whole[1:3]])[1]
        self.assertEqual(stopped["choices"][0]["text"], whole[:1])
        self.assertEqual(stopped["choices"][0]["finish_reason"], "stop")
        full = self.server.complete(prompt="x" * (CONTEXT - 3), max_tokens=50, temperature=0)[1]
        self.assertEqual(full["usage"]["completion_tokens"], 4)

    def test_log_probabilities_are_those_of_generate(self):
        path = folder / "logprobs.jsonl"
        path.write_text('"Hello"\n')
        line = run_with_plugin("generate", "-m", fused, "--device", "cpu", "--prompts", path, "--json", "--logprobs", 2, "-n", 6)
        expected = [token["logprob"] for token in json.loads(line.stdout)["logprobs"]]
        said = self.server.complete(prompt="Hello", max_tokens=6, temperature=0, logprobs=2, echo=True)[1]["choices"][0]
        logprobs = said["logprobs"]["token_logprobs"]
        self.assertIsNone(logprobs[0])
        for got, wanted in zip(logprobs[5:], expected, strict=True):
            self.assertAlmostEqual(got, wanted, delta=1e-5)
        self.assertEqual([len(top) for top in said["logprobs"]["top_logprobs"][5:]], [2] * 6)
        self.assertEqual(said["logprobs"]["tokens"][:5], [*"Hello"])
        self.assertEqual(said["logprobs"]["text_offset"][:6], list(range(6)))

    def test_a_text_is_scored_as_perplexity_does(self):
        text = "The river rises in the hills."
        (folder / "scored.txt").write_text(text)
        result = run_with_plugin("perplexity", "-m", fused, "--device", "cpu", "--text", folder / "scored.txt", "--json")
        answer = self.server.complete(prompt=text, max_tokens=0, echo=True, logprobs=1)[1]
        logprobs = answer["choices"][0]["logprobs"]["token_logprobs"][1:]
        self.assertAlmostEqual(-sum(logprobs) / len(logprobs), json.loads(result.stdout)["mean_nll_nats"], delta=1e-5)
        self.assertEqual((answer["choices"][0]["text"], answer["usage"]["completion_tokens"]), (text, 0))

    def test_a_stream(self):
        response, data = self.server.request(
            "POST", "/v1/completions",
            {"prompt": "Hello", "max_tokens": 20, "temperature": 0, "stream": True, "n": 2,
             "stream_options": {"include_usage": True}},
        )  # fmt: skip
        self.assertEqual(response.headers["Content-Type"], "text/event-stream")
        events = data.decode().split("\n\n")
        self.assertEqual(events[-2:], ["data: [DONE]", ""])
        pieces = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
        self.assertEqual(pieces.pop()["usage"]["completion_tokens"], 40)
        for index in range(2):
            mine = [piece["choices"][0] for piece in pieces if piece["choices"][0]["index"] == index]
            self.assertEqual("".join(choice["text"] for choice in mine), generated(fused, "Hello", "-n", 20))
            self.assertEqual([choice["finish_reason"] for choice in mine], [None] * 19 + ["length"])

    def test_fixed_pages(self):
        self.assertEqual(json.loads(self.server.request("GET", "/health")[1]), {"status": "ok"})
        models = json.loads(self.server.request("GET", "/v1/models")[1])
        self.assertEqual([model["id"] for model in models["data"]], ["fused"])
        response, page = self.server.request("GET", "/")
        self.assertEqual(response.headers["Content-Type"], "text/html; charset=utf-8")
        self.assertNotIn(b"innerHTML", page)
        self.assertNotIn(b"http", page.replace(b"http-equiv", b""))

    @unittest.skipIf(text_string_to_metric_families is None, "prometheus_client is not installed")
    def test_metrics_by_prometheus_parser(self):
        self.server.texts(prompt="Hello", max_tokens=3)
        text = self.server.request("GET", "/metrics")[1].decode()
        families = {family.name: family for family in text_string_to_metric_families(text)}
        self.assertEqual(families["warpfuse_time_per_token_seconds"].type, "histogram")

    def test_metrics_count(self):
        tokens, calls = self.server.metric("tokens_total"), self.server.metric("softmax_calls_total")
        self.server.texts(prompt="Hello", max_tokens=3, temperature=0)  # a sampled text may end before
        self.assertEqual(self.server.metric("tokens_total"), tokens + 3)
        self.assertEqual(self.server.metric("softmax_calls_total"), calls + 6)  # two layers
        self.assertEqual(self.server.metric("softmax_calls_total"), self.server.metric("softmax_calls_by_plugin_total"))
        self.assertEqual(self.server.metric("rows_in_use"), 0)

    @unittest.skipIf(openai is None, "the openai package is not installed")
    def test_the_openai_package(self):
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="none", max_retries=0)
        expected = generated(fused, "Hello", "-n", 10)
        said = client.completions.create(model="fused", prompt="Hello", max_tokens=10, temperature=0, logprobs=1)
        self.assertEqual(said.choices[0].text, expected)
        stream = client.completions.create(model="fused", prompt="Hello", max_tokens=10, temperature=0, stream=True)
        self.assertEqual("".join(piece.choices[0].text for piece in stream), expected)
        self.assertEqual([model.id for model in client.models.list()], ["fused"])
        with self.assertRaises(openai.NotFoundError):
            client.chat.completions.create(model="fused", messages=[{"role": "user", "content": "Hello"}])
        with self.assertRaises(openai.BadRequestError):
            client.completions.create(model="fused", prompt="Hello", best_of=3)

    @unittest.skipIf(shutil.which("curl") is None, "curl is not installed")
    def test_curl(self):
        body = '{"prompt": "Hello", "max_tokens": 4, "temperature": 0}'
        command = ["curl", "-sS", f"http://127.0.0.1:{self.server.port}/v1/completions", "-d", body]
        answer = json.loads(subprocess.check_output(command))
        self.assertEqual(answer["choices"][0]["text"], generated(fused, "Hello", "-n", 4))


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
        self.assertNotIn(b"200 OK", read_all(connection))
        connection = self.server.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        try:
            for i in range(40):
                connection.sendall(b"".join(b"X-%d: %s\r\n" % (i, b"x" * 2000) for _ in range(40)))
        except ConnectionError:
            pass
        self.assertNotIn(b"200 OK", read_all(connection))
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

    def test_malformed_requests_are_answered_or_closed(self):
        draw = random.Random(5)
        good = b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 29\r\n\r\n{"prompt":"x","max_tokens":2}'
        for _ in range(100):
            data = bytearray(good)
            for _ in range(draw.randint(1, 6)):
                at = draw.randrange(len(data))
                data[at : at + draw.randint(0, 3)] = draw.randbytes(draw.randint(0, 3))
            connection = self.server.send(bytes(data[: draw.randint(1, len(data))]))
            connection.shutdown(socket.SHUT_WR)
            read_all(connection)
        self.assertEqual(self.server.request("GET", "/health")[0].status, 200)
        self.server.wait_for("rows_in_use", 0)


class Limits(HostTestCase):
    def test_closed_connections_free_their_rows(self):
        server = Server(fused, "--batch", "1", "--queue", "2")
        # n keeps the row in use for long: a choice after the other.
        long = {"prompt": "x", "max_tokens": 250, "n": 128, "temperature": 0}
        self.assertEqual(server.metric("rows_in_use"), 0)
        for stream in (False, True):
            running = server.post(long | {"stream": stream})
            server.wait_for("rows_in_use", 1)
            queued = server.post(long | {"stream": stream})
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
        server = Server(fused)
        connection = server.post({"prompt": "x", "max_tokens": 200, "n": 4, "temperature": 0}, "Connection: close\r\n")
        server.wait_for("rows_in_use", 4)
        server.process.send_signal(signal.SIGTERM)
        self.assertIn(b'"completion_tokens":800', read_all(connection))
        self.assertEqual(server.process.wait(30), 0)
        server.process.communicate()

    def test_a_second_sigterm_ends_at_once(self):
        server = Server(fused, "--batch", "1")
        connection = server.post({"prompt": "x", "max_tokens": 250, "n": 128, "temperature": 0})
        server.wait_for("rows_in_use", 1)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(5), 130)
        server.process.communicate()
        connection.close()


class Start(HostTestCase):
    def test_keys(self):
        key = folder / "key"
        key.write_text("secret\n")
        server = Server(cycle, "--api-key-file", key)
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
        empty = folder / "empty"
        empty.write_text("\n")
        self.assert_fails(serve("--api-key-file", empty), USAGE, "first line is empty")
        self.assert_fails(serve("--port", 70000), USAGE, "--port", "0..65535")
        self.assert_fails(run_with_plugin("serve"), USAGE, "--model is missing")
        self.assert_fails(run_with_plugin("serve", "-m", folder / "none"), MODEL, "none")
        self.assert_fails(run("serve", "-m", cycle, "--plugin", folder / "none.so"), PLUGIN_ERROR, "none.so")
        self.assertEqual(server.end(), (0, b""))


class Docs(HostTestCase):
    """docs/serve.md, with the server on another port."""

    def test_commands_and_examples(self):
        page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "serve.md").read_text()
        serve, curl = re.findall(r"^\$ (.*)$", page, re.MULTILINE)
        words = shlex.split(serve)
        self.assertEqual(words[:3], ["warpfuse", "serve", "-m"])
        server = Server(fused, *words[4:])
        own = f"http://127.0.0.1:{server.port}"
        with self.subTest("curl"):
            if shutil.which("curl") is None:
                self.skipTest("curl is not installed")
            command = shlex.split(curl.replace("http://127.0.0.1:8080", own)) + ["-sS"]
            answer = json.loads(subprocess.check_output(command))
            sampled = ("-n", "32", "--temperature", "0.8", "--seed", "7")
            self.assertEqual(answer["choices"][0]["text"], generated(fused, "The river", *sampled))
        with self.subTest("openai"):
            if openai is None:
                self.skipTest("the openai package is not installed")
            (example,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
            with contextlib.redirect_stdout(io.StringIO()) as said:
                exec(example.replace("http://127.0.0.1:8080", own), {})
            self.assertTrue(said.getvalue())
        self.assertEqual(server.end(), (0, b""))


class Vanishing(HostTestCase):
    def test_clients_that_are_killed_at_random_points(self):
        server = Server(fused, "--batch", "8")
        expected = generated(fused, "Hello", "-n", 40)

        def client(number):
            draw = random.Random(number)
            for _ in range(3):
                if number % 2:
                    texts = server.texts(prompt="Hello", max_tokens=40, temperature=0)
                    self.assertEqual(texts, [expected])
                    continue
                connection = server.post({"prompt": "Hello", "max_tokens": 200, "stream": draw.random() < 0.5})
                time.sleep(draw.random() * 0.2)
                connection.close()

        with concurrent.futures.ThreadPoolExecutor(64) as clients:
            list(clients.map(client, range(64)))
        server.wait_for("rows_in_use", 0)
        server.wait_for("queue_length", 0)
        self.assertEqual(server.end(), (0, b""))


if __name__ == "__main__":
    unittest.main()
