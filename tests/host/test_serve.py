"""`warpfuse serve`, spoken to over HTTP: answers equal to `generate`, and the examples of its page."""

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import time
import unittest

from cli_bundles import baseline, fused, write
from host_program import ROOT, HostTestCase, main, run_with_plugin
from serve_client import ServeTestCase, Server, generated, read_all
from toys import CONTEXT

try:
    import openai
except ImportError:
    openai = None
try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    text_string_to_metric_families = None


def said_by(command):
    # curl hangs with AddressSanitizer preloaded, which the tests of such a build are run with.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return json.loads(subprocess.check_output(command, env=environment))


class Answers(ServeTestCase):
    SAMPLED = {"temperature": 0.9, "top_k": 40, "top_p": 0.95, "min_p": 0.01}
    OPTIONS = ("--temperature", "0.9", "--top-k", "40", "--top-p", "0.95", "--min-p", "0.01")

    def expected(self, prompt, tokens, seed):
        return generated(fused, prompt, "-n", tokens, *self.OPTIONS, "--seed", seed)

    def test_lists_and_choices(self):
        both = self.server.texts(prompt=["Hello", "zz"], max_tokens=12, temperature=0)
        self.assertEqual(both, [generated(fused, prompt, "-n", 12) for prompt in ("Hello", "zz")])
        ids = self.server.texts(prompt=[[*b"Hello"], [*b"zz"]], max_tokens=12, temperature=0)
        self.assertEqual(ids, both)
        self.assertEqual(self.server.texts(prompt=[*b"zz"], max_tokens=12, temperature=0), both[1:])
        largest = self.server.texts(prompt="zz", max_tokens=25, seed=2**62, **self.SAMPLED)
        self.assertEqual(largest, [self.expected("zz", 25, 2**62)])
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
        path = write("logprobs.jsonl", '"Hello"\n')
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
        result = run_with_plugin("perplexity", "-m", fused, "--device", "cpu", "--text", write("scored.txt", text), "--json")
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

    def test_a_stream_without_chunks_to_a_client_of_http_1_0(self):
        asked = {"prompt": "Hello", "max_tokens": 3, "temperature": 0, "stream": True}
        for headers in ("", "Connection: Keep-Alive\r\n"):
            start = time.monotonic()
            answer = read_all(self.server.send(self.server.request_of(asked, headers, version="1.0")))
            self.assertLess(time.monotonic() - start, 4)  # the server ends the connection, so that the stream has an end
            head, _, body = answer.decode().partition("\r\n\r\n")
            self.assertNotIn("Transfer-Encoding", head)
            *events, done, rest = body.split("\n\n")
            self.assertEqual((done, rest), ("data: [DONE]", ""))
            texts = [json.loads(event.removeprefix("data: "))["choices"][0]["text"] for event in events]
            self.assertEqual("".join(texts), generated(fused, "Hello", "-n", 3))

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
        counts = []
        for _ in range(2):
            self.server.texts(prompt="Hello", max_tokens=3, temperature=0)
            text = self.server.request("GET", "/metrics")[1].decode()
            families = {family.name: family for family in text_string_to_metric_families(text)}
            counts.append([])
            for name in ("warpfuse_time_to_first_token_seconds", "warpfuse_time_per_token_seconds"):
                self.assertEqual(families[name].type, "histogram")
                counts[-1] += [sample.value for sample in families[name].samples if sample.name == f"{name}_count"]
        self.assertEqual([after - before for before, after in zip(*counts)], [1, 2])

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
        self.assertEqual(len(said.choices[0].logprobs.token_logprobs), 10)
        both = {"model": "fused", "prompt": ["Hello", "zz"], "n": 2, "max_tokens": 10, "temperature": 0}
        texts = [text for text in (expected, generated(fused, "zz", "-n", 10)) for _ in range(2)]
        self.assertEqual([choice.text for choice in client.completions.create(**both).choices], texts)
        streamed = [""] * 4
        for piece in client.completions.create(**both, stream=True):
            streamed[piece.choices[0].index] += piece.choices[0].text
        self.assertEqual(streamed, texts)
        self.assertEqual([model.id for model in client.models.list()], ["fused"])
        with self.assertRaises(openai.NotFoundError):
            client.chat.completions.create(model="fused", messages=[{"role": "user", "content": "Hello"}])
        with self.assertRaises(openai.BadRequestError):
            client.completions.create(model="fused", prompt="Hello", best_of=3)


class Rewritten(HostTestCase):
    def test_softmax_becomes_the_plugins(self):
        expected = generated(baseline, "Hello", "-n", 5)
        for option, by_plugin in (((), 0), (("--rewrite",), 10)):
            server = Server(baseline, *option)
            self.assertEqual(server.texts(prompt="Hello", max_tokens=5, temperature=0), [expected])
            self.assertEqual(server.metric("softmax_calls_by_plugin_total"), by_plugin)
            self.assertEqual(server.metric("softmax_calls_total"), 10)  # two layers
            self.assertEqual(server.end()[0], 0)


class Docs(HostTestCase):
    """docs/serve.md, with the server on another port. README has the same commands."""

    def test_commands_and_examples(self):
        page = (ROOT / "docs" / "serve.md").read_text()
        shells = re.findall(r"^```\n((?:\$ .*\n)+)```$", page, re.MULTILINE)
        for commands in shells:
            self.assertIn(commands, (ROOT / "README.md").read_text())
        path, serve, curl = (line[2:] for line in "".join(shells).splitlines())
        self.assertEqual(path, "export PATH=$PWD/build/release/bin:$PATH")
        words = shlex.split(serve)
        self.assertEqual(words[:3], ["warpfuse", "serve", "-m"])
        server = Server(fused, *words[4:])
        own = f"http://127.0.0.1:{server.port}"
        with self.subTest("curl"):
            if shutil.which("curl") is None:
                self.skipTest("curl is not installed")
            command = shlex.split(curl.replace("http://127.0.0.1:8080", own)) + ["-sS"]
            answer = said_by(command)
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


if __name__ == "__main__":
    main()
