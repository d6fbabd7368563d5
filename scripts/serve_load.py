"""Clients of `warpfuse serve` that always wait for an answer: their latencies, and the times between tokens.

Each process serves several connections with one thread, so that a client costs less than what it measures.
"""

import json
import os
import selectors
import socket
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

PATIENCE = 60  # seconds that an answer may take


@dataclass
class Seen:
    """What clients saw, in seconds."""

    latencies: list[float] = field(default_factory=list)  # of answers
    first: list[float] = field(default_factory=list)  # from a request to its first token
    between: list[float] = field(default_factory=list)  # tokens of a stream; 0 for those that came in one read
    failed: int = 0

    def add(self, other: "Seen") -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


def request_bytes(body: dict[str, Any]) -> bytes:
    """POST /v1/completions."""
    text = json.dumps(body).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)


class Client:
    """One connection, which sends its next request when an answer is there."""

    def __init__(self, port: int, bodies: list[dict[str, Any]]) -> None:
        self.requests = [request_bytes(body) for body in bodies]
        self.stream = bool(bodies[0].get("stream"))
        self.sent = 0
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self) -> None:
        self.tail, self.tokens, self.wanted = b"", 0, 0
        self.start = self.last = time.perf_counter()
        self.socket.sendall(self.requests[self.sent % len(self.requests)])
        self.sent += 1

    def read(self, seen: Seen) -> bool:
        """Takes what there is; True: the answer is there."""
        data = self.socket.recv(1 << 16)
        now = time.perf_counter()
        if not data:
            raise ConnectionError("the server has closed the connection")
        text = self.tail + data
        if not self.stream:
            self.tail = text
            if not self.wanted and (head := text.find(b"\r\n\r\n")) >= 0:
                self.wanted = head + 4 + int(text[:head].lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            if not self.wanted or len(text) < self.wanted:
                return False
            seen.failed += not text.startswith(b"HTTP/1.1 200")
        else:
            # Tokens whose mark is in both this read and the one before are counted once.
            tokens = text.count(b'"index":') - self.tail.count(b'"index":')
            self.tail = text[-16:]
            if tokens:
                (seen.between if self.tokens else seen.first).append(now - self.last)
                seen.between += [0.0] * (tokens - 1)
            self.tokens += tokens
            self.last = now if tokens else self.last
            if b"0\r\n\r\n" not in text[-8:]:
                return False
            seen.failed += self.tokens == 0
        seen.latencies.append(now - self.start)
        return True


def run_clients(port: int, bodies: list[dict[str, Any]], count: int, ends: float, measures: float) -> Seen:
    """Clients until a time of the monotonic clock, and until each has an answer; what they see counts from another one on."""
    seen, ignored = Seen(), Seen()
    waiting = selectors.DefaultSelector()
    new = set()  # clients without an answer yet
    for i in range(count):
        client = Client(port, bodies[i % len(bodies) :] + bodies[: i % len(bodies)])
        waiting.register(client.socket, selectors.EVENT_READ, client)
        client.send()
        new.add(client)
    while (now := time.monotonic()) < ends or new:
        if now > ends + PATIENCE:
            raise TimeoutError(f"{len(new)} of {count} clients have no answer")
        for key, _ in waiting.select(timeout=0.1):
            if key.data.read(seen if now >= measures else ignored):
                new.discard(key.data)
                if now < ends:
                    key.data.send()
    return seen


def _on_core(core: int, *arguments: Any) -> Seen:
    os.sched_setaffinity(0, [core])
    return run_clients(*arguments)


def load(port: int, bodies: list[dict[str, Any]], clients: int, seconds: float, warm_up: float, cores: list[int]) -> Seen:
    """Clients on these cores, a process per core."""
    processes = min(len(cores), clients)
    measures = time.monotonic() + warm_up
    seen = Seen()
    with ProcessPoolExecutor(processes) as pool:
        counts = [clients // processes + (i < clients % processes) for i in range(processes)]
        found = [pool.submit(_on_core, core, port, bodies, count, measures + seconds, measures) for core, count in zip(cores, counts)]
        for each in found:
            seen.add(each.result())
    return seen
