"""scripts/report.py on made-up runs: the rows of docs/performance.md that another implementation wins."""

import unittest

import made_up_runs as made_up
from report_case import ReportCase


class Losses(ReportCase):
    MARKS = "<!-- nvidia-h200: written by scripts/report.py. -->\n{}\n<!-- End of what it writes. -->"
    OLD = f"# Performance\n\n{MARKS.format('old')}\n\nwhy\n"

    def summary(self, rows, beside=(), *words):
        """What stands between the marks."""
        path = self.docs / "performance.md"
        path.write_text(self.OLD, encoding="utf-8")
        self.write(made_up.bench([*made_up.table()["rows"], *rows]), "nvidia-h200.json")
        if beside:
            self.write(made_up.bench(list(beside)), "nvidia-h200-peers.json")
        self.report("--docs", self.docs, *words)
        text = path.read_text(encoding="utf-8")
        self.assertTrue(text.startswith("# Performance\n\n<!-- nvidia") and text.endswith(" -->\n\nwhy\n"), text)
        return text

    def shapes(self, text):
        return [line.split(" | ")[0][2:] for line in text.splitlines() if line.startswith("| ")][1:]

    def test_the_rule(self):
        # The spread is 0.99 to 1.02 of the median: 0.96 of the time is beyond it, 0.98 is not.
        rows = [
            made_up.row((2, 2), share=0.5, aten=0.5 / 0.96),
            made_up.row((3, 2), share=0.5, aten=0.5 / 0.98),
            made_up.row((4, 2), share=0.5, operator="scaled_masked_softmax", mask="causal", chain=0.8) | {"presets": ["odd"]},
            made_up.row((5, 2), share=0.5, operator="fused_logprob", cross_entropy=0.6),
            made_up.row((6, 2), share=0.5, operator="fused_logprob", in_place=0.9),
            made_up.row((7, 2), share=0.5, operator="dropout_softmax", softmax=0.9),
            made_up.row((2, 2, 2), share=0.5, operator="linear_dropout_softmax", linear=0.9),
        ]
        beside = [made_up.row((2, 2), dim=1, share=0.5, Liger=0.9), made_up.row((3, 2), share=0.5, Liger=0.4)]
        text = self.summary(rows, beside)
        self.assertEqual(self.shapes(text), ["2 x 2", "4 x 2 causal", "fused_logprob 5 x 2"])
        self.assertIn("3 of 27 rows", text)
        self.assertRegex(text, r"\| 2 x 2 \| float32 \| forward \| 0.00 \| 50.0 % \| 0.00 Liger \| 0.55x \|")
        self.report("--docs", self.docs, "--check")
        (self.docs / "performance.md").write_text(text.replace("0.55x", "1.00x"), encoding="utf-8")
        self.assertIn("performance.md: not what nvidia-h200.json gives", self.report("--docs", self.docs, "--check", code=1))

    def test_the_worst_twelve_and_a_count(self):
        text = self.summary([made_up.row((size, 2), share=0.5, aten=0.55 + size / 100) for size in range(1, 16)])
        self.assertEqual(self.shapes(text), [f"{size} x 2" for size in range(15, 3, -1)])
        self.assertIn("And 3 more, each at least 0.86x.", text)

    def test_no_row_loses(self):
        self.assertIn("On an NVIDIA H200, 0 of 20 rows", text := self.summary([]))
        self.assertEqual(self.shapes(text), [])

    def test_a_row_without_a_right_result_is_the_worst(self):
        wrong = made_up.row((2, 2))
        wrong["variants"][0] = {"name": "warpfuse", "status": "wrong"}
        text = self.summary([made_up.row((3, 2), share=0.5, aten=0.9), wrong])
        self.assertEqual(self.shapes(text), ["2 x 2", "3 x 2"])
        self.assertIn("| forward | wrong | – |", text)

    def test_another_gpu_without_a_place_on_the_page(self):
        path = self.write(made_up.bench(made_up.table()["rows"], made_up.GPU | {"name": "NVIDIA H100"}), "nvidia-h100.json")
        self.assertEqual(self.summary([], (), "--json", path), self.OLD)
        (self.docs / "performance.md").write_text("no marks\n", encoding="utf-8")
        self.assertIn("is missing on the page", self.report("--docs", self.docs, code=2))


if __name__ == "__main__":
    unittest.main()
