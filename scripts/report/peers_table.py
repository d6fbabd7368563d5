"""The block about peers: how they were timed, and all of their times beside ours."""

from collections.abc import Callable

from .beside import DISPLAYED, Beside, fastest
from .markdown import Column, paired_table
from .model import Bench, Row
from .numbers import NOTHING, bandwidth, microseconds, times
from .tables import amount, spread, time_of
from .targets import Peers


def peers_text(_bench: Bench, peers: Peers) -> str:
    """What the columns of best peers are."""
    parts = []
    if peers.beside:
        parts += [_method(peers.beside), _summary(peers.beside), _table(peers.beside)]
    if peers.best:
        parts.append(_other_run(peers))
    return "\n\n".join(parts) or "No other kernels were measured on this device."


def _method(beside: Beside) -> str:
    run = beside.bench
    versions = ", ".join(f"{name} {value}" for name, value in run.versions.items())
    timing = "; ".join(f"{name}: {text}" for name, text in run.timing.items())
    copy = f"{amount(run.copy_bytes)} ran at {bandwidth(run.copy_gb_per_s)}"
    data = f"[{run.path.name}](./{run.path.name})"
    return (
        f"Same run: `{run.command}`, {run.date}, on {run.device_name} ({versions}; a copy of "
        f"{copy}; {data}). Times are {timing}."
    )


def _summary(beside: Beside) -> str:
    found = [compared for row in beside.bench.rows if (compared := fastest(row, "p50"))]
    ahead = sum(compared.ratio >= 1 for compared in found)
    text = f"Ours is the fastest on {ahead} of {len(found)} rows by the graph's times"
    events = [compared for row in beside.bench.rows if (compared := fastest(row, "event_p50"))]
    ahead = sum(compared.ratio >= 1 for compared in events)
    return f"{text}, on {ahead} of {len(events)} by event times."


def _table(beside: Beside) -> str:
    def ratio(row: Row) -> str:
        found = fastest(row, "p50")
        return times(found.ratio) if found else NOTHING

    def ours_by_event(row: Row) -> str:
        variant = row.variants.get("warpfuse")
        return microseconds(variant.event_p50 if variant else None)

    def peer_by_event(row: Row) -> str:
        found = fastest(row, "event_p50")
        return found.text if found else NOTHING

    displayed = dict.fromkeys(DISPLAYED.get(name, name) for name in beside.names)
    columns: list[Column] = [
        (">warpfuse us", lambda row: spread(row, "warpfuse")),
        *((f">{name}", _of_displayed(beside, name)) for name in displayed),
        (">best peer / ours", ratio),
        (">event: warpfuse", ours_by_event),
        ("event: best peer", peer_by_event),
    ]
    return paired_table(beside.bench.rows, columns)


def _of_displayed(beside: Beside, displayed: str) -> Callable[[Row], str]:
    """ATen's times stand in one column, whether it takes one kernel or a chain of them."""
    names = [name for name in beside.names if DISPLAYED.get(name, name) == displayed]

    def cell(row: Row) -> str:
        here = [name for name in names if name in row.variants]
        return time_of(here[0])(row) if here else NOTHING

    return cell


def _other_run(peers: Peers) -> str:
    again = {DISPLAYED.get(name, name) for name in peers.beside.names} if peers.beside else set()
    names = "; ".join(
        f"{name} is {text}" for name, text in peers.versions.items() if name not in again
    )
    kept = " Those that were run again beside ours are left out here." if again else ""
    return f"Other run: {peers.measured}{kept} {names}."
