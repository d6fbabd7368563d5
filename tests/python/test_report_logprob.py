#!/usr/bin/env python3
"""The table of fused_logprob in scripts/report.py."""

import unittest

import synthetic_bench as made_up
from report_case import ReportCase, peers, target

SHAPE = (8192, 50257)


def row(direction, ours, **more):
    """A made-up row: log_softmax + gather takes five times as long, and three times the memory."""
    entry = made_up.row(SHAPE, "bfloat16")
    size = SHAPE[0] * SHAPE[1] * 2
    passes = {"forward": 1, "backward": 2, "both": 3}[direction]
    variants = [made_up.variant("warpfuse", ours) | {"extra_bytes": 131_072}]
    if direction != "forward":
        variants.append(made_up.variant("in_place", ours - 1) | {"extra_bytes": 512})
    variants.append(made_up.variant("aten", ours * 5) | {"extra_bytes": 3 * size})
    variants.append(made_up.variant("cross_entropy", ours * 4) | {"extra_bytes": 2 * size})
    floor = passes * size / made_up.COPY / 1e3
    return entry | {
        "operator": "fused_logprob",
        "direction": direction,
        "least_bytes": passes * size,
        "floor_us": floor,
        "variants": variants,
        "presets": ["logprob"],
    } | more


class Logprob(ReportCase):
    def table(self, *rows, figures=()):
        self.put_gpu(made_up.bench([*rows, made_up.row((1024, 8192), "float32")]))
        self.put("docs/benchmarks/peers.json", peers(list(figures)))
        return self.block("logprob")

    def test_three_passes_stand_in_one_line(self):
        text = self.table(row("forward", 213.0), row("backward", 430.0), row("both", 640.0))
        (line,) = [line for line in text.splitlines() if "8192 x 50257" in line]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        header = [cell.strip() for cell in text.splitlines()[0].strip("|").split("|")]
        found = dict(zip(header, cells))
        self.assertEqual(found["pass"], "forward<br>backward<br>both")
        self.assertEqual(found["log_softmax + gather us"], "1,065<br>2,150<br>3,200")
        self.assertEqual(found["in place us"], "–<br>429<br>639")
        self.assertEqual(found["MB beside"], "0.131<br>0.131<br>0.131")
        self.assertEqual(found["in place"], "–<br>0.001<br>0.001")
        self.assertEqual(found["cross_entropy us"], "852<br>1,720<br>2,560")

    def test_figures_of_time_and_memory(self):
        key = {"shape": SHAPE, "dtype": "bfloat16", "directions": ["forward"], "device": "cuda"}

        def figure(measure, limit):
            return {**key, "operator": "fused_logprob", "measure": measure, "at_most": limit}

        text = self.table(row("forward", 213.0), figures=[figure("us", 213), figure("us", 212)])
        self.assertIn("✓ at most 213 us, ✗ at most 212 us", text)
        text = self.table(
            row("forward", 213.0),
            figures=[figure("extra_bytes", 131_072), figure("extra_bytes", 131_071)],
        )
        self.assertIn("✓ at most 131,072 bytes beside, ✗ at most 131,071 bytes beside", text)

    def test_a_run_without_the_preset(self):
        self.assertIn("Not measured in this run.", self.table())

    def test_softmaxs_table_has_none_of_it(self):
        self.table(row("forward", 213.0, presets=["table"]))
        self.assertNotIn("50257", self.block("softmax"))


if __name__ == "__main__":
    unittest.main()
