"""The JSON of `warpfuse bench generate` and of its Hugging Face peers, checked while it is read."""

from dataclasses import dataclass
from pathlib import Path

from .errors import ReportError
from .fields import Fields, read_json

FORMAT = "warpfuse-generate-1"
HF_FORMAT = "warpfuse-generate-peers-1"


@dataclass(frozen=True)
class Spread:
    """Of several runs."""

    p50: float
    least: float
    most: float


@dataclass(frozen=True)
class Latency:
    """Microseconds from one token of a sequence to the next."""

    p5: float
    p50: float
    p95: float


@dataclass(frozen=True)
class Work:
    """What is generated, whoever does it."""

    model: str
    dtype: str
    batch: int
    prompt: int
    text: str = ""  # of a prompt that is known by it

    @property
    def label(self) -> str:
        """The work in words."""
        return f"{self.model} {self.dtype}, batch {self.batch}, prompt {self.prompt_name}"

    @property
    def prompt_name(self) -> str:
        """The prompt's text, or its length."""
        return f"“{self.text}”" if self.text else str(self.prompt)


@dataclass(frozen=True)
class Decoding:
    """A variant's generation, with a CUDA graph of the step or without."""

    work: Work
    variant: str
    graph: bool
    tokens: int
    tokens_per_s: Spread
    ttft_ms: Spread
    latency: Latency | None
    kernels: int | None
    softmax_share: float | None
    floor_us: float | None
    empty_graph_us: float | None
    host_us: float | None
    weight_bytes: float | None
    cache_bytes: float | None
    note: str

    @property
    def floor_share(self) -> float | None:
        """The floor's part of a step's median time."""
        return self.floor_us / self.latency.p50 if self.floor_us and self.latency else None


@dataclass(frozen=True)
class Prefill:
    """A variant's prompt processing."""

    work: Work
    variant: str
    ms: Spread


@dataclass(frozen=True)
class Accuracy:
    """A variant beside the baseline on the same tokens."""

    model: str
    variant: str
    dtype: str
    difference: float
    allowed: str
    within: bool
    first_divergence: int | None
    tokens: int


@dataclass(frozen=True)
class Peer:
    """A way of Hugging Face's to generate; without a rate there is a reason."""

    work: Work
    name: str
    tokens: int
    how: str
    tokens_per_s: Spread | None
    ttft_ms: Spread | None
    reason: str


@dataclass(frozen=True)
class Source:
    """Where the rows of a file come from."""

    path: Path
    date: str
    command: str
    versions: dict[str, str]
    device: dict[str, str]
    timing: dict[str, str]


@dataclass(frozen=True)
class Generation:
    """A file of ours."""

    source: Source
    read_gb_per_s: float
    prompts: str
    decodings: list[Decoding]
    prefills: list[Prefill]
    accuracies: list[Accuracy]

    def decoding(self, work: Work, variant: str, graph: bool) -> Decoding | None:
        """The row of a variant, None where it was not measured."""
        for row in self.decodings:
            if (row.work, row.variant, row.graph) == (work, variant, graph):
                return row
        return None

    def prefill(self, work: Work, variant: str) -> Prefill | None:
        """The same of the prompt processing."""
        for row in self.prefills:
            if (row.work, row.variant) == (work, variant):
                return row
        return None


@dataclass(frozen=True)
class PeerRun:
    """A file of the peers."""

    source: Source
    peers: list[Peer]

    def measured(self, work: Work) -> dict[str, Spread]:
        """The rates on a work by the peers' names, in the order of the file."""
        return {p.name: p.tokens_per_s for p in self.peers if p.work == work and p.tokens_per_s}


def _spread(fields: Fields) -> Spread:
    p50 = fields.positive("p50")
    return Spread(p50, fields.positive("min", p50), fields.positive("max", p50))


def _work(fields: Fields) -> Work:
    return Work(
        fields.get("model", str),
        fields.get("dtype", str),
        fields.get("batch", int),
        fields.get("prompt", int),
        fields.get("text", str, ""),
    )


def _decoding(fields: Fields) -> Decoding:
    latency = fields.object("latency_us", {})
    return Decoding(
        work=_work(fields),
        variant=fields.get("variant", str),
        graph=fields.get("graph", bool),
        tokens=fields.get("tokens", int),
        tokens_per_s=_spread(fields.object("tokens_per_s")),
        ttft_ms=_spread(fields.object("ttft_ms")),
        latency=Latency(*(latency.positive(name) for name in ("p5", "p50", "p95")))
        if latency.raw
        else None,
        kernels=fields.get("kernels_per_token", int, None),
        softmax_share=fields.get("softmax_kernels_share", float, None),
        floor_us=fields.positive("floor_us", None),
        empty_graph_us=fields.positive("empty_graph_us", None),
        host_us=fields.get("host_us_per_token", float, None),
        weight_bytes=fields.get("weight_bytes", float, None),
        cache_bytes=fields.get("cache_bytes", float, None),
        note=fields.get("capture_note", str, ""),
    )


def _prefill(fields: Fields) -> Prefill:
    return Prefill(_work(fields), fields.get("variant", str), _spread(fields.object("ms")))


def _accuracy(fields: Fields) -> Accuracy:
    difference = fields.get("largest_logit_difference", float)
    relative = fields.get("relative_logit_difference", float, None)
    # Runs before the comparison by rows give an absolute limit.
    limit = fields.get("tolerance" if relative is not None else "allowed", float)
    return Accuracy(
        model=fields.get("model", str),
        variant=fields.get("variant", str),
        dtype=fields.get("dtype", str),
        difference=difference,
        allowed=f"{limit:.3g}" + (" of its row" if relative is not None else ""),
        within=(difference if relative is None else relative) <= limit,
        first_divergence=fields.get("first_divergence", int, None),
        tokens=fields.get("tokens_compared", int),
    )


def _peer(fields: Fields) -> Peer:
    measured = fields.get("status", str) == "ok"
    return Peer(
        work=_work(fields),
        name=fields.get("peer", str),
        tokens=fields.get("tokens", int),
        how=fields.get("how", str, ""),
        tokens_per_s=_spread(fields.object("tokens_per_s")) if measured else None,
        ttft_ms=_spread(fields.object("ttft_ms")) if measured else None,
        reason=fields.get("reason", str, ""),
    )


def _source(fields: Fields, path: Path) -> Source:
    return Source(
        path=path,
        date=fields.get("date", str),
        command=fields.get("command", str, ""),
        versions=fields.texts("versions"),
        device=fields.texts("device"),
        timing=fields.texts("timing"),
    )


def _require_distinct(path: Path, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ReportError(f"{path}: {name} is there twice")


def load_generation(path: Path, allow_partial: bool = False) -> Generation:
    """A file of `warpfuse bench generate`; one that was interrupted only if `allow_partial`."""
    fields = read_json(path, FORMAT)
    # The first files have no such field, and are of runs that ended.
    if not fields.get("complete", bool, True) and not allow_partial:
        raise ReportError(f"{path}: the run is incomplete (--allow-partial takes it anyway)")
    decodings = [_decoding(row) for row in fields.objects("rows")]
    if not decodings:
        raise ReportError(f"{path}: no rows")
    prefills = [_prefill(row) for row in fields.objects("prefill", [])]
    graph = {True: "with a graph", False: "without a graph"}
    _require_distinct(path, [f"{d.work.label} {d.variant} {graph[d.graph]}" for d in decodings])
    _require_distinct(path, [f"prefill: {p.work.label} {p.variant}" for p in prefills])
    return Generation(
        source=_source(fields, path),
        read_gb_per_s=fields.positive("read_gb_per_s"),
        prompts=fields.object("prompts", {}).get("source", str, ""),
        decodings=decodings,
        prefills=prefills,
        accuracies=[_accuracy(row) for row in fields.objects("accuracy", [])],
    )


def load_peer_run(path: Path) -> PeerRun:
    """A file of scripts/generate_peers.py; what it had no time for is in it as such."""
    fields = read_json(path, HF_FORMAT)
    peers = [_peer(row) for row in fields.objects("rows")]
    _require_distinct(path, [f"{peer.work.label} {peer.name}" for peer in peers])
    return PeerRun(_source(fields, path), peers)
