"""Targets for all rows of some presets in a range of columns: the list `rules` of docs/benchmarks/peers.json.

Their measures are ratios of one run, so that they hold for every GPU.
"""

import math
from dataclasses import dataclass
from typing import Any

from .run import Bench, Row, reading
from .targets import Peers, Target, Verdict
from .text import NOTHING, table

TEXT = (
    "And for all rows of presets, as far as they were measured; `by sectors` counts the sectors of 32 bytes that hold "
    "visible scores in place of the bytes alone."
)


@dataclass(frozen=True)
class Rule:
    """A target that may name several operators, dtypes and masks, for rows of `low` to `high` columns."""

    target: Target
    presets: list[str]
    low: int
    high: float
    multiple_of: int  # that the columns are

    @classmethod
    def of(cls, raw: dict[str, Any]) -> "Rule":
        """An entry of the file; a range without an end is a list of one number."""
        low, high = [*raw["columns"], math.inf][:2]
        return cls(Target.of(raw), raw["presets"], low, high, raw.get("multiple_of", 1))

    def covers(self, row: Row) -> bool:
        columns = row.key.shape[row.key.dim]
        inside = self.low <= columns <= self.high and columns % self.multiple_of == 0
        return inside and not set(self.presets).isdisjoint(row.presets) and self.target.covers(row.key, row.direction)

    @property
    def cells(self) -> list[str]:
        names = (self.target.where.get(name, "all") for name in ("operator", "mask", "dtype"))
        named = [name if isinstance(name, str) else ", ".join(name) for name in names]
        columns = str(self.low) if self.low == self.high else f"{self.low} to {self.high}"
        columns = columns.replace(" to inf", " and more") + f", multiples of {self.multiple_of}" * (self.multiple_of > 1)
        return [", ".join(self.presets), *named, columns, ", ".join(self.target.directions) or "all", self.target.text]

    def result(self, bench: Bench, peers: Peers) -> list[str]:
        """How many rows meet it, and the worst; a row without a right result of ours is worse than any."""
        verdicts = [(row, self.target.verdict(row, bench, peers)) for row in bench.rows if self.covers(row)]
        judged = [(row, verdict) for row, verdict in verdicts if verdict.met is not None]
        if not judged:
            return ["not measured", NOTHING, NOTHING]

        def goodness(found: tuple[Row, Verdict]) -> float:
            value = found[1].value
            return -math.inf if value is None else -value if self.target.upper else value

        row, worst = min(judged, key=goodness)
        met = sum(bool(verdict.met) for _, verdict in judged)
        return [f"{met} of {len(judged)}", row.name, worst.measured]


def rules_table(bench: Bench, peers: Peers) -> str:
    """A line per rule for this kind of device."""
    lines = []
    for place, raw in peers.rules.items():
        with reading(place):
            rule = Rule.of(raw)
            if raw["device"] == bench.device["type"]:
                lines.append(rule.cells + rule.result(bench, peers))
    header = ["presets", "operators", "masks", "dtype", "columns", "pass", "target", ">rows met", "worst row", ">measured"]
    return f"{TEXT}\n\n{table(header, lines)}" if lines else ""
