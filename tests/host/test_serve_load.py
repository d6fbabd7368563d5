"""`warpfuse serve` under load: 64 clients that get what lone ones get while others vanish, and memory that does not grow.

    WARPFUSE_HOST=... WARPFUSE_PLUGIN=... python test_serve_load.py [unittest options]

WARPFUSE_LOAD is the share of 64 x 50 and of 10,000 requests that is sent, 0.1 unless given; WARPFUSE_LOAD_BUNDLE the model,
a toy unless given.
"""

import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import socket
import struct
import subprocess
import threading
import time
import unittest

from cli_bundles import cycle, fused, write
from host_program import HostTestCase, main
from serve_client import Server

BUNDLE = os.environ.get("WARPFUSE_LOAD_BUNDLE", fused)
LOAD = float(os.environ.get("WARPFUSE_LOAD", "0.1"))
CLIENTS, VANISHING, REQUESTS = 64, 8, round(50 * LOAD)
MEMORY_REQUESTS = round(10_000 * LOAD)
TEXT = (
    "The river rises in the hills north of the town and flows past the old mill , where the first bridge was built in 1872 . "
    "On September 14 , the storm moved into the sea . The band released a second album in the following year . "
)
SAMPLED = {"temperature": 0.9, "top_k": 50, "top_p": 0.95}


def kinds():
    """Requests of mixed lengths: prompts of one word to more than a piece, 1 to 48 tokens, greedy and sampled."""
    draw = random.Random(7)
    for seed in range(24):
        begin = draw.randrange(len(TEXT))
        prompt = (TEXT * 2)[begin : begin + draw.choice([1, 8, 40, 190])]
        sampling = {"temperature": 0} if seed % 2 else SAMPLED | {"seed": seed}
        yield {"prompt": prompt, "max_tokens": draw.choice([1, 4, 16, 48]), "n": draw.choice([1, 1, 1, 3]), **sampling}


class Client:
    """Asks over one connection, sometimes for a stream; the texts of all choices."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)

    def ask(self, request, stream=False):
        self.connection.request("POST", "/v1/completions", json.dumps(request | {"stream": stream}))
        response = self.connection.getresponse()
        data = response.read().decode()
        assert response.status == 200, data
        if not stream:
            return [choice["text"] for choice in json.loads(data)["choices"]]
        texts = [""] * request["n"]
        *events, done, _ = data.split("\n\n")
        assert done == "data: [DONE]", done
        for event in events:
            choice = json.loads(event.removeprefix("data: "))["choices"][0]
            texts[choice["index"]] += choice["text"]
        return texts


def vanish(server, draw, patience=0.5):
    """A request whose client goes away before its end, while its answer is made or while it is read."""
    body = json.dumps({"prompt": TEXT, "max_tokens": 100, "n": draw.randint(1, 4), "stream": draw.random() < 0.7}).encode()
    data = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    if draw.random() < 0.2:
        data = data[: draw.randrange(len(data))]
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(data)
        time.sleep(draw.random() * patience)
        if draw.random() < 0.3:
            connection.settimeout(patience)
            try:
                connection.recv(draw.randrange(1, 3000))
            except TimeoutError:
                pass
        if draw.random() < 0.5:  # a reset, not an orderly end
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Load(HostTestCase):
    def test_each_of_many_clients_gets_a_lone_clients_answer(self):
        server = Server(BUNDLE)
        lone = Client(server)
        asked = [*kinds()]
        expected = [lone.ask(request) for request in asked]
        ended = threading.Event()

        def client(number):
            draw = random.Random(number)
            mine = Client(server)
            for _ in range(REQUESTS):
                index = draw.randrange(len(asked))
                self.assertEqual(mine.ask(asked[index], stream=draw.random() < 0.5), expected[index], asked[index])
            mine.connection.close()

        def vanishing_client(number):
            draw = random.Random(number)
            while not ended.is_set():
                vanish(server, draw)

        with concurrent.futures.ThreadPoolExecutor(CLIENTS + VANISHING) as threads:
            vanishing = [threads.submit(vanishing_client, -number) for number in range(VANISHING)]
            try:
                list(threads.map(client, range(CLIENTS)))
            finally:
                ended.set()
            for each in vanishing:
                each.result()
        server.wait_for("rows_in_use", 0)
        server.wait_for("queue_length", 0)
        self.assertGreaterEqual(server.metric('requests_total{outcome="ok"}'), len(asked) + CLIENTS * REQUESTS)
        self.assertEqual(server.metric('requests_total{outcome="error"}'), 0)
        self.assertGreater(server.metric('requests_total{outcome="cancelled"}'), 0)
        lone.connection.close()
        self.assertEqual(server.end(), (0, b""))

    @unittest.skipIf(shutil.which("ab") is None, "ab is not installed")
    def test_ab(self):
        """A client that speaks HTTP/1.0, and keeps connections."""
        server = Server(BUNDLE)
        body = write("body.json", '{"prompt": "The river", "max_tokens": 8, "temperature": 0}')
        url = f"http://127.0.0.1:{server.port}/v1/completions"
        for keep in ([], ["-k"]):
            command = ["ab", "-q", *keep, "-n", str(round(2000 * LOAD)), "-c", "16", "-p", str(body), "-T", "application/json", url]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            self.assertRegex(said, r"Failed requests: +0\n")
            self.assertNotIn("Non-2xx", said)
        self.assertEqual(server.end(), (0, b""))

    @unittest.skipIf("libasan" in os.environ.get("LD_PRELOAD", ""), "AddressSanitizer keeps freed memory")
    def test_memory_does_not_grow(self):
        server = Server(cycle, "--batch", "16", "--queue", "16")
        status = pathlib.Path(f"/proc/{server.process.pid}/status")
        resident = lambda: int(re.search(r"^VmRSS:\s+(\d+) kB$", status.read_text(), re.MULTILINE)[1])

        def ask(count):
            """Of every kind of request: answered whole, streamed, with logprobs, refused, and left."""

            def client(number):
                draw = random.Random(number)
                mine = Client(server)
                for i in range(count // 8):
                    request = {"prompt": TEXT[: draw.randrange(1, 200)], "max_tokens": 4, "n": 1, "temperature": i % 2}
                    if i % 10 == 3:
                        request |= {"logprobs": 5, "echo": True, "n": 3}
                    if i % 10 == 5:
                        vanish(server, draw, patience=0.01)
                    elif i % 10 == 7:
                        self.assertEqual(server.request("POST", "/v1/completions", draw.randbytes(100))[0].status, 400)
                    else:
                        mine.ask(request, stream=i % 10 == 1)
                mine.connection.close()

            with concurrent.futures.ThreadPoolExecutor(8) as clients:
                list(clients.map(client, range(8)))

        ask(max(MEMORY_REQUESTS // 2, 1500))  # the threads' heaps come with their first requests
        before = resident()
        ask(MEMORY_REQUESTS)
        self.assertLess(resident(), before * 1.02)
        self.assertEqual(server.end(), (0, b""))


if __name__ == "__main__":
    main()
