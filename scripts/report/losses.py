"""Which rows lose to a peer: the list in docs/performance.md, from a GPU's run and the run of peers."""

from typing import NamedTuple

from .run import Bench, Row, Variant
from .targets import Peers, is_peer, shown
from .text import microseconds, percent, table, times

MOST = 12
MEASURED = "the presets table, basic, sweep, odd, logprob and dropout and of sample_tokens"  # by scripts/bench_gpu.sh
END = "<!-- End of what it writes. -->"


class Loss(NamedTuple):
    """A row and the fastest of the peers that beat it."""

    ratio: float  # 0 where ours has no right result
    row: Row
    peer: Variant

    @property
    def cells(self) -> list[str]:
        ours, key = self.row.variants["warpfuse"], self.row.key
        us = microseconds(ours.p50) if ours.p50 else ours.status
        beside = f"{microseconds(self.peer.p50)} {shown(self.peer.name)}"
        return [key.title, key.dtype, self.row.direction, us, percent(self.row.share()), beside, times(self.ratio)]


def loss(row: Row) -> Loss | None:
    """That of a row whose 5th percentile is above the 95th of a peer, so that it is not the run's noise."""
    ours = row.variants.get("warpfuse")
    faster = [
        variant
        for variant in row.variants.values()
        if ours and is_peer(row, variant) and variant.p95 and (ours.p5 is None or variant.p95 < ours.p5)
    ]
    if not ours or not faster:
        return None
    peer = min(faster, key=lambda variant: variant.p50 or 0)
    return Loss((peer.p50 or 0) / ours.p50 if ours.p50 else 0, row, peer)


def begin(bench: Bench) -> str:
    """The mark of a GPU's list."""
    return f"<!-- {bench.path.stem}: written by scripts/report.py. -->"


def block(bench: Bench, peers: Peers) -> str:
    """The list between its marks, the worst first; a row that both runs hold stands once, as it was worst."""
    rows = [row for run in (bench, peers.beside) if run for row in run.rows]
    rows = [row for row in rows if any(is_peer(row, variant) for variant in row.variants.values())]
    by_name: dict[str, Loss] = {}
    for found in sorted(filter(None, map(loss, rows)), key=lambda found: found.ratio):
        by_name.setdefault(found.row.name, found)
    worst = list(by_name.values())
    parts = [
        begin(bench),
        f"On an {bench.device_name}, {len(worst)} of {len({row.name for row in rows})} rows of {MEASURED} lose to ATen or to "
        "another implementation by more than the run's spread: their 5th percentile is above the peer's 95th.",
    ]
    if worst:
        header = ["shape", "dtype", "pass", ">warpfuse us", ">share", "best peer us", ">speed-up"]
        parts.append(table(header, (found.cells for found in worst[:MOST])))
    if len(worst) > MOST:
        parts.append(f"And {len(worst) - MOST} more, each at least {times(worst[MOST].ratio)}.")
    return "\n\n".join([*parts, END])
