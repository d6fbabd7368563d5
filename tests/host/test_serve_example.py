"""docs/examples: its server is built against the install tree and answers what its model does, by one thread or eight.

    WARPFUSE_BUILD=... CXX=... python test_serve_example.py [unittest options]

WARPFUSE_EXAMPLE_SERVER names one that is built already; WARPFUSE_DEVICE=cuda runs the model there. Exit code 77: no GPU, or
WARPFUSE_BUILD has programs alone, with nothing to install from.
"""

import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import shlex
import socket
import subprocess
import threading
import time
import unittest
import warnings

import torch

from host_program import DEVICE, PLUGIN, ROOT, folder, skip_unless

EXAMPLES = ROOT / "docs" / "examples"
THREADS = 8


class Attention(torch.nn.Module):
    """Two outputs of two inputs; rows of `values` are looked up by `indices`."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.query = torch.nn.Linear(8, 8)

    def forward(self, values, indices):
        scores = self.query(values)[indices] @ values.t()
        weights = torch.ops.warpfuse.scaled_masked_softmax(scores[None, None], 0.35, None, "none", None, None, 0, None)
        return weights[0, 0] @ values, weights[0, 0].argmax(1)


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def built():
    """The example's program and the plugin that it opens, of an install tree in `folder`."""
    build = pathlib.Path(os.environ["WARPFUSE_BUILD"])
    run("cmake", "--install", build, "--prefix", folder / "installed")
    run("cmake", "-S", EXAMPLES, "-B", folder / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={folder / 'installed'}",
        "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CXX_COMPILER_LAUNCHER={os.environ.get('WARPFUSE_LAUNCHER', '')}")  # fmt: skip
    run("cmake", "--build", folder / "build")
    return folder / "build" / "server", next((folder / "installed").glob("lib*/**/libwarpfuse.so"))


def inputs_of(seed):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(16, 8, generator=draw), torch.randint(16, (5,), generator=draw)


def as_json(tensor):
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": [*tensor.shape], "data": tensor.flatten().tolist()}


class Example(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.ops.load_library(PLUGIN)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.jit is deprecated
            torch.jit.trace(Attention(), inputs_of(0), check_trace=False).save(str(folder / "model.pt"))
            cls.model = torch.jit.load(str(folder / "model.pt"))
        named = os.environ.get("WARPFUSE_EXAMPLE_SERVER")
        program, plugin = (named, PLUGIN) if named else built()
        for _ in range(3):  # somebody else may take the port before the server does
            with socket.create_server(("127.0.0.1", 0)) as free:
                cls.port = free.getsockname()[1]
            command = [program, folder / "model.pt", plugin, cls.port, DEVICE]
            cls.process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE)
            if cls.answers_in_time():
                cls.addClassCleanup(cls.stop)
                return
            errors = cls.stop()
        raise AssertionError(errors)

    @classmethod
    def answers_in_time(cls):
        deadline = time.monotonic() + 120
        while cls.process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", cls.port)).close()
                return cls.process.poll() is None
            except ConnectionError:
                time.sleep(0.1)
        return False

    @classmethod
    def stop(cls):
        cls.process.terminate()
        return cls.process.communicate()[1].decode()

    def connect(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        self.addCleanup(connection.close)
        return connection

    def post(self, connection, body):
        connection.request("POST", "/predict", body if isinstance(body, bytes) else json.dumps(body))
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")

    def answers(self, connection, seeds):
        found = []
        for seed in seeds:
            status, text = self.post(connection, {"inputs": [as_json(tensor) for tensor in inputs_of(seed)]})
            self.assertEqual(status, 200, text)
            found.append(json.loads(text)["outputs"])
        return found

    def test_the_model_answers(self):
        (answer,) = self.answers(self.connect(), [3])
        for output, expected in zip(answer, self.model(*inputs_of(3)), strict=True):
            self.assertEqual(output["shape"], [*expected.shape])
            torch.testing.assert_close(torch.tensor(output["data"]).view(expected.shape), expected.float(), rtol=1e-4, atol=1e-5)

    def test_threads_give_one_threads_answers(self):
        seeds = range(40)
        connection = self.connect()
        self.answers(connection, [0] * 3)  # an executor may choose another plan after its first runs
        expected = self.answers(connection, seeds)
        connection.close()
        # A connection keeps its thread: all are open before the first is used.
        opened = [self.connect() for _ in range(THREADS)]
        together = threading.Barrier(THREADS)

        def client(connection):
            self.answers(connection, [0])
            together.wait(60)
            return self.answers(connection, seeds)

        with concurrent.futures.ThreadPoolExecutor(THREADS) as clients:
            for found in clients.map(client, opened):
                self.assertEqual(found, expected)

    def test_bad_input(self):
        connection = self.connect()
        values, indices = map(as_json, inputs_of(3))
        for body in (
            b"", b"{", b"[]", b'"\xff"', b"[" * 100_000, {}, {"inputs": 3}, {"inputs": [3]}, {"inputs": []}, {"inputs": [values]},
            {"inputs": [values, values]}, {"inputs": [values | {"dtype": "int8"}, indices]}, {"inputs": [values | {"dtype": 3}, indices]},
            {"inputs": [values | {"shape": [16, 9]}, indices]}, {"inputs": [values | {"shape": [2**40, 2**40]}, indices]},
            {"inputs": [values | {"shape": [16.5, 8]}, indices]}, {"inputs": [values | {"shape": "16"}, indices]},
            {"inputs": [values | {"data": ["a"]}, indices]}, {"inputs": [values | {"data": [[1.0]]}, indices]},
            {"inputs": [values, indices | {"data": [0, 1, 2, 3, 4.5]}]}, {"inputs": [values, {"dtype": "int64", "shape": [5]}]},
        ):  # fmt: skip
            status, text = self.post(connection, body)
            self.assertEqual(status, 400, (body, text))
            self.assertTrue(text, body)
        if DEVICE == "cpu":  # on a GPU nothing checks what it is an index into
            self.assertEqual(self.post(connection, {"inputs": [values, indices | {"data": [0, 1, 2, 3, 99]}]})[0], 400)
        self.answers(connection, [3])

    def test_curl_as_documented(self):
        page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
        (command,) = re.findall(r"^\$ (curl .*)$", page, re.MULTILINE)
        command = shlex.split(command.replace(":8080", f":{self.port}"))
        text = subprocess.run([*command, "-sS", "-w", "\n%{http_code}"], capture_output=True, text=True, check=True).stdout
        answer, status = text.rsplit("\n", 1)
        self.assertEqual((status, len(json.loads(answer)["outputs"])), ("200", 2), answer)

    def test_it_stays_small(self):
        self.assertLessEqual(len((EXAMPLES / "server.cpp").read_text(encoding="utf-8").splitlines()), 60)


if __name__ == "__main__":
    built_already = "WARPFUSE_EXAMPLE_SERVER" in os.environ
    skip_unless(built_already or (pathlib.Path(os.environ["WARPFUSE_BUILD"]) / "CMakeCache.txt").exists(), "no example server, and no build")
    skip_unless(DEVICE == "cpu" or torch.cuda.is_available(), "no GPU")
    unittest.main()
