"""scripts/report.py on made-up runs: targets for all rows of presets in a range of columns.

python test_report_rules.py [unittest options]
"""

import itertools
import math
import unittest

import made_up_runs as made_up
from report_case import ReportCase

from report.run import Row
from report.sectors import ELEMENT, least_of_sectors


class Rules(ReportCase):
    def lines(self, rules, rows=(), device=made_up.GPU):
        """The cells behind the target of each rule's line."""
        rows = [*made_up.table()["rows"], *(row | {"presets": ["odd"]} for row in rows)]
        self.write(made_up.bench(rows, device), "nvidia-h200.json")
        self.write(made_up.peers(rules=rules), "peers.json")
        found = [line.strip("| ").split(" | ") for line in self.page().splitlines() if line.startswith(("| odd", "| sweep"))]
        return [line[7:] for line in found]

    def test_a_rule_holds_for_a_range(self):
        rows = [
            made_up.row((8, columns), dtype, way, operator, mask=mask, share=columns / 100)
            for columns, dtype, way, operator, mask in [
                (32, "float32", "forward", "softmax", "none"), (33, "float32", "forward", "softmax", "none"),
                (48, "float32", "backward", "softmax", "none"), (56, "bfloat16", "forward", "softmax", "none"),
                (64, "float16", "forward", "log_softmax", "none"), (65, "float16", "forward", "softmax", "none"),
                (40, "bfloat16", "forward", "scaled_masked_softmax", "causal"),
            ]
        ]  # fmt: skip
        halves = {"dtype": ["float16", "bfloat16"]}
        rule = lambda limit, *columns, measure="share", **where: made_up.rule(measure, limit, columns, presets=["odd"], **where)
        for given, result in [
            (rule(0.4, 33, 64), ["4 of 5", "8 x 33 float32 forward", "33.0 %"]),
            (rule(0.4, 33), ["5 of 6", "8 x 33 float32 forward", "33.0 %"]),
            (rule(0.57, 33, 64, **halves), ["1 of 3", "8 x 40 causal bfloat16 forward", "40.0 %"]),
            (rule(0.57, 33, 64, mask="none", **halves), ["1 of 2", "8 x 56 bfloat16 forward", "56.0 %"]),
            (rule(0.4, 2, operator="log_softmax"), ["1 of 1", "log_softmax 8 x 64 float16 forward", "64.0 %"]),
            (rule(0.4, 2, multiple_of=16, directions=["forward"]), ["1 of 2", "8 x 32 float32 forward", "32.0 %"]),
            (rule(1, 2, measure="us", end="at_most"), ["7 of 7", "8 x 48 float32 backward", "0.00225"]),
            (rule(0.4, 66), ["not measured", "–", "–"]),
            (rule(0.99, 2, measure="near_best_peer"), ["7 of 7", "8 x 32 float32 forward", "2.00x"]),
            (made_up.rule("share", 0.4, [66], presets=["sweep"]), ["not measured", "–", "–"]),
        ]:
            with self.subTest(given):
                self.assertEqual(self.lines([given], rows), [result])

    def test_no_result_is_the_worst(self):
        rows = [made_up.row((8, 33), share=0.1), made_up.row((8, 34))]
        rows[1]["variants"][0] = {"name": "warpfuse", "status": "wrong"}
        rule = made_up.rule("share", 0.05, [2], presets=["odd"])
        self.assertEqual(self.lines([rule], rows), [["1 of 2", "8 x 34 float32 forward", "no result"]])

    def test_the_best_peer_is_that_of_either_run(self):
        rows = [made_up.row((8, 33), share=0.5, aten=0.6), made_up.row((8, 34), share=0.5, aten=0.4)]
        rule = made_up.rule("near_best_peer", 0.8, [2], presets=["odd"])
        self.assertEqual(self.lines([rule], rows), [["2 of 2", "8 x 33 float32 forward", "0.83x"]])
        self.write(made_up.bench([made_up.row((8, 34), share=0.5, Liger=0.7)]), "nvidia-h200-peers.json")
        self.assertEqual(self.lines([rule], rows), [["1 of 2", "8 x 34 float32 forward", "0.71x"]])

    def test_rules_hold_for_other_gpus_and_not_for_a_cpu(self):
        rules = [made_up.rule("share", 0.5, [33, 64])]
        other = made_up.GPU | {"name": "NVIDIA H100"}
        self.assertEqual(self.lines(rules, device=other)[0][0], "4 of 4")
        self.write(made_up.cpu(), "cpu.json")
        self.assertNotIn("| sweep |", self.page(name="cpu.md"))

    def test_what_is_refused(self):
        rule = made_up.rule("share", 0.5, [33, 64])
        for broken, said in (
            ({"columns": []}, "not enough values"), ({"measure": "speed"}, "measure: expected"), ({"at_least": -1}, "above 0"),
        ):  # fmt: skip
            self.write(made_up.peers(rules=[rule, rule | broken]), "peers.json")
            errors = self.report("--docs", self.docs, code=2)
            self.assertIn("peers.json: rules[1]: ", errors)
            self.assertIn(said, errors)


class Sectors(unittest.TestCase):
    def test_each_sector_counts_once(self):
        shapes = [(5, 3, 3), (7, 49, 49), (4, 2, 50, 50), (3, 8, 8), (2, 5, 40), (2, 40, 5), (33, 33)]
        for shape, dtype, way in itertools.product(shapes, ("float32", "bfloat16"), ("forward", "backward")):
            with self.subTest(shape, dtype=dtype, way=way):
                raw = made_up.row(shape, dtype, way, "scaled_masked_softmax", "causal")
                (*_, queries, keys), size = shape, ELEMENT[dtype]
                heads = 32  # whose sectors come again
                touched, visible = set(), 0
                for query in range(heads * queries):
                    for key in range(min(query % queries + 1, keys)):
                        touched.add((query * keys + key) * size // 32)
                        visible += size
                inputs = 1 if way == "forward" else 2
                more = (32 * len(touched) - visible) * math.prod(shape[:-2]) / heads
                self.assertGreater(more, 0)
                self.assertAlmostEqual(least_of_sectors(Row(raw)), raw["least_bytes"] + inputs * more)

    def test_other_masks_have_none(self):
        self.assertIsNone(least_of_sectors(Row(made_up.row((4, 4), mask="padding"))))


if __name__ == "__main__":
    unittest.main()
