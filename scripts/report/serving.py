"""What docs/serve.md says of the server's speed: tables from docs/benchmarks/<device>-serve.json, and the plot."""

from pathlib import Path
from typing import Any

from .run import ReportError, Run, reading
from .text import microseconds, rate, table, times

SERVE = "warpfuse-serve-1"
BEGIN = "<!-- Written by scripts/report.py serve. -->"
END = "<!-- End of what it writes. -->"
# Of a GPU. (clients, whether streamed): the least part of generate's tokens per second.
TARGETS = {(clients, stream): 0.75 if stream else 0.9 for clients in (32, 128) for stream in (False, True)}
FIRST_TOKEN_MS, BETWEEN_MS, BETWEEN_RATIO = 2.0, 1.0, 3.0


def runs(docs: Path) -> list[dict[str, Any]]:
    """The files, a GPU's first."""
    found = [Run(path, SERVE).raw for path in sorted((docs / "benchmarks").glob("*-serve.json"))]
    return sorted(found, key=lambda run: run["device"]["type"] == "cpu")


def device_name(run: dict[str, Any]) -> str:
    """For people."""
    return f"{run['cores']['server']} CPU cores" if run["device"]["type"] == "cpu" else run["device"]["name"]


def _mark(run: dict[str, Any], met: bool) -> str:
    return "" if run["device"]["type"] == "cpu" else " ✓" if met else " ✗"


def rows_table(run: dict[str, Any]) -> str:
    """Tokens per second and latency by clients, beside generate at that batch."""
    lines = []
    for clients in dict.fromkeys(row["clients"] for row in run["rows"]):
        whole, stream = (
            next(row for row in run["rows"] if (row["clients"], row["stream"]) == (clients, streamed))
            for streamed in (False, True)
        )
        cells = [str(clients), rate(whole["generate_tokens_per_s"])]
        for row in (whole, stream):
            part = row["tokens_per_s"] / row["generate_tokens_per_s"]
            target = TARGETS.get((clients, row["stream"]))
            cells += [rate(row["tokens_per_s"]), times(part) + (_mark(run, part >= target) if target else "")]
        latency = whole["latency_ms"]
        cells += map(microseconds, (whole.get("first_answers_ms", {}).get("max"), latency["p50"], latency["p99"]))
        lines.append(cells)
    header = [">clients", ">generate, tokens/s", ">in one piece", ">of generate", ">streamed", ">of generate",
              ">first answers, ms", ">answer p50, ms", ">p99, ms"]  # fmt: skip
    return table(header, lines)


def sentences(run: dict[str, Any]) -> str:
    """The first token of a lone request, the times between tokens, and how many clients are worth one."""
    said = []
    if first := run["first_token"]:
        ours, theirs = first["ms"]["p50"], first["generate_ms"]["p50"]
        mark = _mark(run, ours <= theirs + FIRST_TOKEN_MS)
        said.append(f"A lone request has its first token after {microseconds(ours)} ms (generate: {microseconds(theirs)}){mark}.")
    if long := run["between_tokens"]:
        spread = long["between_tokens_ms"]
        met = spread["p99"] <= min(BETWEEN_MS, BETWEEN_RATIO * spread["p50"])
        said.append(
            f"{long['clients']} clients with prompts of {long['prompt']} tokens see a token every {microseconds(spread['p50'])} ms "
            f"(p50), p99 {microseconds(spread['p99'])} ms{_mark(run, met)}, at "
            f"{rate(long['tokens_per_s'])} tokens/s."
        )
    by_clients = {row["clients"]: row["tokens_per_s"] for row in run["rows"] if not row["stream"]}
    if run["device"]["type"] == "cpu" and {1, 8} <= set(by_clients):
        said.append(f"8 clients are given {times(by_clients[8] / by_clients[1])} the tokens of one.")
    return " ".join(said)


def block(docs: Path) -> str:
    """All of it, between its marks."""
    parts = []
    for run in runs(docs):
        with reading(f"{run['device'].get('name')}: serve"):
            model = ", ".join(run["model"][name] for name in ("model", "variant", "dtype"))
            apart = "on cores of its own" if run["cores"]["apart"] else "on the same cores"
            parts.append(
                f"{device_name(run)}: {model}, prompts of {run['prompt']} tokens, "
                f"{run['tokens']} more; load by {run['load']} {apart}; `--batch` is the number of clients.\n\n"
                f"{rows_table(run)}\n\n{sentences(run)}"
            )
    if not parts:
        raise ReportError(f"{docs}/benchmarks: no file of the server")
    return "\n\n".join([BEGIN, *parts, "![throughput and latency over clients](images/serve.svg)", END])
