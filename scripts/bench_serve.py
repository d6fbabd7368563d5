#!/usr/bin/env python3
"""Measures `warpfuse serve` under load, beside `warpfuse bench generate` at the same batch; scripts/bench_serve.sh calls it.

    bench_serve.py --host build/release/bin/warpfuse --bundle bundles/distilgpt2-random/fused-float16 --json OUT.json

The load is wrk's (the environment variable WRK, else the one on PATH), on cores of their own where there are four or
more. Times between tokens are those of own clients, which read server-sent events. Exit code 2: unusable input.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from report.run import ReportError, reading, replace
from report.serving import SERVE
from serve_load import Seen, load

LUA = """
wrk.method = "POST"
local bodies = {%s}
local next = 0
request = function()
  next = next + 1
  return wrk.format(nil, nil, nil, bodies[next %% #bodies + 1])
end
done = function(summary, latency)
  io.write(string.format("WRK %%d %%d %%.1f %%.1f\\n", summary.requests,
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status,
    latency:percentile(50), latency:percentile(99)))
end
"""

STARTED = time.monotonic()


def say(text: str) -> None:
    """Progress."""
    print(f"==> {text} ({time.monotonic() - STARTED:.0f} s so far)", file=sys.stderr, flush=True)


def counts(text: str) -> list[int]:
    """Numbers from 1, separated by commas."""
    found = [int(word) for word in text.split(",")]
    if min(found) < 1:
        raise ValueError
    return found


def parse_arguments(words: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", type=Path, required=True, help="the program warpfuse")
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--device", default="cuda", help="default: %(default)s")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--clients", type=counts, default="1,8,32,64,128", help="default: %(default)s")
    parser.add_argument("--prompt", type=int, default=32, help="tokens; default: %(default)s")
    parser.add_argument("-n", "--tokens", type=int, default=224, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=2.4, help="of each load; default: %(default)s")
    parser.add_argument("--long-prompt", type=int, default=512, help="for the times between tokens; default: %(default)s")
    parser.add_argument("--long-clients", type=int, default=32, help="default: %(default)s")
    parser.add_argument("--command", default="", help="what to name as the command")
    return parser.parse_args(words)


def named_bundle(bundle: Path, folder: Path, vocabulary: int) -> Path:
    """The bundle with a made-up vocabulary, since random weights come with none of their size."""
    made = folder / bundle.name
    made.mkdir()
    for file in bundle.iterdir():
        if file.name not in ("vocab.json", "merges.txt"):
            (made / file.name).symlink_to(file.resolve())
    tokens = json.loads((bundle / "vocab.json").read_text(encoding="utf-8"))
    tokens = {token: at for token, at in tokens.items() if at < 256}
    tokens |= {f"\u0120w{at}": at for at in range(256, vocabulary)}
    (made / "vocab.json").write_text(json.dumps(tokens, ensure_ascii=False), encoding="utf-8")
    (made / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    return made


class Server:
    """A running server, on its cores."""

    def __init__(self, run: "Run", batch: int) -> None:
        command = [*run.on_cores, run.host, "serve", "-m", run.bundle, "--device", run.device, "--port", "0"]
        command = list(map(str, [*command, "--batch", batch, "--queue", 256]))
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r":(\d+)$", line)
        if not found:
            self.process.terminate()  # if it is not gone already
            raise ReportError(f"{' '.join(command)}: gave no port, exit code {self.process.wait()}")
        self.port = int(found[1])

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def metric(self, name: str) -> float:
        """One of its figures."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            text = answer.read().decode()
        return float(re.search(rf"^warpfuse_{re.escape(name)} (\S+)$", text, re.M)[1])

    @contextmanager
    def rate(self) -> Iterator[dict[str, float]]:
        """Tokens per second in the time of a block, once that is left."""
        found: dict[str, float] = {}
        start, before = time.perf_counter(), self.metric("tokens_total")
        yield found
        end, after = time.perf_counter(), self.metric("tokens_total")
        found["tokens_per_s"] = (after - before) / (end - start)

    def gaps(self) -> dict[str, float]:
        """Times between tokens so far, as the model's thread had them: how many up to a limit in ms, and all."""
        limits = {"0.5": 'bucket{le="0.0005"}', "1": 'bucket{le="0.001"}', "2": 'bucket{le="0.002"}', "all": "count"}
        return {limit: self.metric(f"time_per_token_seconds_{name}") for limit, name in limits.items()}


class Run:
    """The measurements of one bundle."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.arguments, self.host, self.device, self.folder = arguments, arguments.host, arguments.device, folder
        with reading(arguments.bundle):
            self.model = json.loads((arguments.bundle / "bundle.json").read_text(encoding="utf-8"))
            self.vocabulary = self.model["vocab_size"]
            self.bundle = named_bundle(arguments.bundle, folder, self.vocabulary)
        cores = sorted(os.sched_getaffinity(0))
        apart = len(cores) // 4  # the load's, of a machine that has enough
        self.server_cores, self.load_cores = (cores[:-apart], cores[-apart:]) if apart else (cores, cores)
        self.on_cores = ["taskset", "-c", ",".join(map(str, self.server_cores))]
        self.wrk = os.environ.get("WRK") or shutil.which("wrk")
        self.draw = random.Random(0)
        if self.wrk is None:
            say("wrk is neither on PATH nor named by WRK: the load comes from own clients, which take more of a CPU")

    def bodies(self, prompt: int, stream: bool) -> list[dict[str, Any]]:
        """Requests of random prompts."""
        ids = [[self.draw.randrange(self.vocabulary // 2, self.vocabulary - 1) for _ in range(prompt)] for _ in range(64)]
        common = {"max_tokens": self.arguments.tokens, "temperature": 0, "stream": stream}
        return [{"prompt": each} | common for each in ids]

    def generate(self, batches: list[int]) -> dict[str, Any]:
        """`bench generate` at these batches."""
        path = self.folder / "generate.json"
        models = self.folder / "models"
        models.mkdir()
        (models / self.bundle.name).symlink_to(self.bundle)
        graph = "on" if self.device.startswith("cuda") else "off"
        command = [*self.on_cores, self.host, "bench", "generate", "-m", models, "--device", self.device, "--graph", graph,
                   "--batch", ",".join(map(str, batches)), "--prompt", self.arguments.prompt, "-n", self.arguments.tokens,
                   "--rounds", 3, "--json", path]  # fmt: skip
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
        return json.loads(path.read_text(encoding="utf-8"))

    def by_wrk(self, server: Server, clients: int, stream: bool) -> dict[str, Any]:
        """A load by wrk."""
        seconds = self.arguments.seconds
        script = self.folder / "load.lua"
        bodies = self.bodies(self.arguments.prompt, stream)
        script.write_text(LUA % ",".join(f"[=[{json.dumps(body)}]=]" for body in bodies), encoding="utf-8")
        threads = min(clients, len(self.load_cores))
        warm_up = seconds / 3
        command = ["taskset", "-c", ",".join(map(str, self.load_cores)), self.wrk, "-t", threads, "-c", clients,
                   "-d", f"{round(seconds + warm_up + 1)}s", "--timeout", "60s", "-s", script,
                   f"http://127.0.0.1:{server.port}/v1/completions"]  # fmt: skip
        libraries = f"{Path(self.wrk).resolve().parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        environment = os.environ | {"LD_LIBRARY_PATH": libraries}
        with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True, env=environment) as process:
            time.sleep(warm_up)
            with server.rate() as rate:
                time.sleep(seconds)
            said = process.communicate()[0]
        found = re.search(r"^WRK (\d+) (\d+) (\S+) (\S+)$", said, re.M)
        if process.returncode != 0 or not found:
            raise ReportError(f"{self.wrk}: exit code {process.returncode}: {said.strip()[-200:]}")
        requests, failed, p50, p99 = map(float, found.groups())
        latency = {"p50": p50 / 1e3, "p99": p99 / 1e3}
        return rate | {"latency_ms": latency, "requests": int(requests), "failed": int(failed)}

    def load(self, server: Server, prompt: int, stream: bool, clients: int, seconds: float | None = None) -> Seen:
        """What own clients see in that time, after a third of it."""
        seconds = self.arguments.seconds if seconds is None else seconds
        return load(server.port, self.bodies(prompt, stream), clients, seconds, seconds / 3, self.load_cores)

    def by_clients(self, server: Server, clients: int, prompt: int, stream: bool) -> dict[str, Any]:
        """A load by own clients, with the times between tokens if they read streams."""
        gaps = server.gaps()
        with server.rate() as rate:
            seen = self.load(server, prompt, stream, clients)
        latency = spread(seen.latencies)
        result = rate | {"requests": len(seen.latencies), "failed": seen.failed, "latency_ms": latency}
        if stream:
            result["between_tokens_ms"] = spread(seen.between)
            result["first_token_ms"] = spread(seen.first)
            since = {limit: count - gaps[limit] for limit, count in server.gaps().items()}
            result["between_tokens_within_ms_at_server"] = {limit: count / since["all"] for limit, count in since.items()}
        return result

    def row(self, server: Server, clients: int, stream: bool) -> dict[str, Any]:
        """One load."""
        if self.wrk:
            return self.by_wrk(server, clients, stream)
        return self.by_clients(server, clients, self.arguments.prompt, stream)

    def wrk_version(self) -> str:
        """Of the client."""
        if not self.wrk:
            return "own clients"
        said = subprocess.run([self.wrk, "-v"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"wrk (?:debian/)?(\S+)", said)
        return f"wrk {found[1]}" if found else "wrk"


def spread(seconds: list[float]) -> dict[str, float] | None:
    """In ms."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    at = lambda part: ordered[min(int(part * len(ordered)), len(ordered) - 1)] * 1e3
    return {"p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": ordered[-1] * 1e3, "count": len(ordered)}


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Everything, as the JSON has it."""
    run = Run(arguments, folder)
    levels = arguments.clients
    say(f"warpfuse bench generate at batch {', '.join(map(str, levels))}")
    generated = run.generate(levels)
    rates = {row["batch"]: row["tokens_per_s"]["p50"] for row in generated["rows"]}
    rows, first = [], None
    for clients in levels:
        with Server(run, clients) as server:
            burst = spread(run.load(server, arguments.prompt, False, clients, seconds=0).latencies)
            say(f"{clients} clients, the first answers: p50 {burst['p50']:.1f} ms, the last one after {burst['max']:.1f} ms")
            for stream in (False, True):
                say(f"{clients} clients, {'streamed' if stream else 'in one piece'}")
                found = run.row(server, clients, stream)
                rows.append({"clients": clients, "stream": stream, "generate_tokens_per_s": rates[clients],
                             "first_answers_ms": burst, **found})  # fmt: skip
                say(f"  {found['tokens_per_s']:,.0f} tokens/s, {found['tokens_per_s'] / rates[clients]:.2f}x of generate")
            if clients == 1:
                say("first token of a lone request")
                seen = run.load(server, arguments.prompt, True, 1)
                alone = next(row for row in generated["rows"] if row["batch"] == 1)
                first = {"ms": spread(seen.first), "generate_ms": alone["ttft_ms"]}
                say(f"  {first['ms']['p50']:.2f} ms; generate {alone['ttft_ms']['p50']:.2f} ms")
    long = None
    if arguments.long_clients > 0:
        say(f"times between tokens: {arguments.long_clients} clients, prompts of {arguments.long_prompt}")
        with Server(run, arguments.long_clients) as server:
            long = {"clients": arguments.long_clients, "prompt": arguments.long_prompt}
            long |= run.by_clients(server, arguments.long_clients, arguments.long_prompt, True)
        between = long["between_tokens_ms"]
        say(f"  p50 {between['p50']:.3f} ms, p99 {between['p99']:.3f} ms, {long['tokens_per_s']:,.0f} tokens/s; at the server "
            f"{long['between_tokens_within_ms_at_server']['1']:.2%} within 1 ms")  # fmt: skip
    return {
        "format": SERVE, "date": time.strftime("%Y-%m-%d"), "command": arguments.command or " ".join(sys.argv),
        "versions": generated["versions"], "device": generated["device"],
        "model": {name: run.model[name] for name in ("model", "variant", "dtype")},
        "prompt": arguments.prompt, "tokens": arguments.tokens, "load": run.wrk_version(),
        "cores": {"server": len(run.server_cores), "load": len(run.load_cores),
                  "apart": run.server_cores != run.load_cores},
        "rows": rows, "first_token": first, "between_tokens": long,
    }  # fmt: skip


def main(words: list[str] | None = None) -> int:
    """One line on stderr per failure."""
    arguments = parse_arguments(words)
    try:
        with tempfile.TemporaryDirectory() as folder:
            result = measure(arguments, Path(folder))
        replace(arguments.json, json.dumps(result, indent=1) + "\n")
    except (ReportError, OSError, subprocess.CalledProcessError) as error:
        print(f"bench_serve.py: error: {error}", file=sys.stderr)
        return 2
    say(f"{arguments.json}: done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
