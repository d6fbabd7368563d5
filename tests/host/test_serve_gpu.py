"""Two `warpfuse serve` on one GPU at once: both answer what each of them answers alone.

Exit code 77: no GPU.
"""

import concurrent.futures
import os

os.environ["WARPFUSE_DEVICE"] = "cuda"

from cli_bundles import fused
from host_program import HostTestCase, main
from serve_client import Server, generated

REQUESTS = [({"prompt": prompt, "max_tokens": tokens, "temperature": 0}, ("-n", tokens))
            for prompt, tokens in (("Hello", 40), ("the river", 9), ("x" * 200, 30), ("a", 1))]  # fmt: skip


class OneServer(HostTestCase):
    def test_softmax_calls_of_graphs_are_counted(self):
        server = Server(fused)
        self.assertEqual(server.metric("softmax_calls_total"), 0)
        server.texts(prompt="a", max_tokens=3, temperature=0)
        self.assertEqual(server.metric("softmax_calls_total"), 6)  # two layers
        self.assertEqual(server.end(), (0, b""))


class TwoServers(HostTestCase):
    def test_two_servers_on_one_gpu(self):
        expected = [[generated(fused, request["prompt"], *arguments)] for request, arguments in REQUESTS]
        servers = [Server(fused, "--batch", "8"), Server(fused, "--batch", "32")]

        def client(number):
            for i in range(20):
                index = (number + i) % len(REQUESTS)
                self.assertEqual(servers[number % 2].texts(**REQUESTS[index][0]), expected[index])

        with concurrent.futures.ThreadPoolExecutor(16) as clients:
            list(clients.map(client, range(16)))
        for server in servers:
            self.assertEqual(server.metric("softmax_calls_total"), server.metric("softmax_calls_by_plugin_total"))
            self.assertEqual(server.metric("rows_in_use"), 0)
            self.assertEqual(server.end(), (0, b""))


if __name__ == "__main__":
    main()
