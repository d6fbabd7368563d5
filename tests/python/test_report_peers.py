"""scripts/report.py with peers that were timed beside ours in one run.

python test_report_peers.py [unittest options]
"""

import unittest

import synthetic_bench as made_up

# First, since it makes the package report importable.
from report_case import ReportCase, best, peers, plain, target

WANTED = [target("peer_speed_up", 1.0)]


def run(ours, **others):
    """A run of peers on the one row of plain(); its times have nothing to do with plain's."""
    bench = plain()
    bench["rows"][0]["variants"] = [
        made_up.variant(name.replace("_", " "), time)
        for name, time in {"warpfuse": ours, **others}.items()
    ]
    return bench


class Beside(ReportCase):
    def line(self, beside=None, best_peers=(), bench=None):
        self.put_gpu(bench or plain())
        self.put("docs/benchmarks/peers.json", peers(WANTED, best_peers))
        if beside:
            self.put("docs/benchmarks/nvidia-h200-peers.json", beside)
        return self.cells("softmax", "1024 x 8192")

    def test_ours_is_that_of_the_peers_run(self):
        line = self.line(run(20.0, aten=30.0, Liger=19.0))
        self.assertEqual(line["best peer us, same run"], "19.0 Liger (0.95x)")
        self.assertEqual(line["target"], "✗ best peer")
        self.assertIn("| 0.95x |", self.block("gpu-figures"))
        line = self.line(run(20.0, aten=30.0, Liger=20.5))
        self.assertEqual(line["target"], "✓ best peer")

    def test_a_peer_that_was_run_again_is_judged_by_that(self):
        again = run(20.0, aten=30.0, Other=25.0)
        line = self.line(again, [best(1.0)])
        self.assertNotIn("best peer us, other run", line)
        self.assertEqual(line["target"], "✓ best peer")

    def test_a_peer_that_was_not_run_again_keeps_its_time(self):
        line = self.line(run(20.0, aten=30.0), [best(1.0)])
        self.assertEqual(line["best peer us, other run"], "1.00 Other, graph")
        self.assertEqual(line["best peer us, same run"], "30.0 ATen (1.50x)")
        self.assertEqual(line["target"], "✗ best peer")

    def test_wrong_and_unsupported_peers_have_no_time(self):
        beside = run(20.0, aten=30.0, Liger=5.0)
        beside["rows"][0]["variants"][2] = {"name": "Liger", "status": "wrong", "reason": "off"}
        beside["rows"][0]["variants"].append(made_up.unsupported("Triton tutorial"))
        self.assertEqual(self.line(beside)["best peer us, same run"], "30.0 ATen (1.50x)")
        cells = self.cells("peers", "1024 x 8192")
        self.assertEqual((cells["Liger"], cells["Triton tutorial"]), ("wrong", "unsupported"))

    def test_ours_wrong_compares_with_nothing(self):
        beside = run(20.0, aten=30.0)
        beside["rows"][0]["variants"][0] = {"name": "warpfuse", "status": "wrong", "reason": "off"}
        self.assertNotIn("best peer us, same run", self.line(beside))

    def test_another_gpu(self):
        beside = run(20.0, aten=30.0)
        beside["device"]["name"] = "NVIDIA Other"
        self.assertNotIn("best peer us, same run", self.line(beside))

    def test_the_block(self):
        beside = run(20.0, aten=30.0, Liger=19.0)
        beside["rows"].append(
            made_up.row((96, 64, 64), "float32", operator="scaled_masked_softmax")
        )
        self.line(beside)
        text = self.block("peers")
        self.assertIn("fastest on 1 of 2 rows by the graph's times, on 1 of 2 by event", text)
        self.assertIn("nvidia-h200-peers.json", text)
        cells = self.cells("peers", "1024 x 8192")
        self.assertEqual((cells["ATen"], cells["Liger"]), ("30.0", "19.0"))
        self.assertEqual(cells["event: best peer"], "22.0 Liger")
        self.assertNotEqual(self.cells("peers", "[96, 64, 64] no mask")["ATen"], "–")

    def test_an_interrupted_run_is_refused(self):
        self.put_gpu(plain())
        self.put(
            "docs/benchmarks/nvidia-h200-peers.json", run(20.0, aten=30.0) | {"complete": False}
        )
        self.fail_with("nvidia-h200-peers.json: the run was not completed")


if __name__ == "__main__":
    unittest.main()
