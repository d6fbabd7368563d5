"""warpfuse bench linear_dropout_softmax on the CPU: forward, training step, and an earlier run."""

import json
import os
import pathlib
import tempfile
import unittest

from host_program import HostTestCase, run_with_plugin

os.environ["OMP_NUM_THREADS"] = "1"  # threads that wait for each other are slow beside other work

temporary = tempfile.TemporaryDirectory()
folder = pathlib.Path(temporary.name)


def bench(*arguments):
    return run_with_plugin("bench", *arguments, "--device", "cpu", "--quick")


class Linear(HostTestCase):
    def rows(self, *arguments):
        path = folder / "linear.json"
        self.assert_ok(bench("linear_dropout_softmax", *arguments, "--backward", "--json", path))
        return json.loads(path.read_text())["rows"]

    def test_forward_and_a_training_step_beside_the_linear_alone(self):
        rows = self.rows("--shapes", "24x40x56,1x8x8", "--dtype", "float32,bfloat16,float64")
        self.assertEqual(len(rows), 2 * 3 * 2)
        for row in rows:
            self.assertEqual([variant["name"] for variant in row["variants"]], ["warpfuse", "aten", "linear"])
            for variant in row["variants"]:
                self.assertEqual(variant["status"], "ok", variant)
            self.assertGreater(row["unfused_bytes"], row["fused_bytes"])
            self.assertGreater(row["fused_bytes"], row["least_bytes"])

    def test_compared_with_an_earlier_run(self):
        self.rows("--shapes", "4x8x8")
        earlier = folder / "linear_earlier.json"
        (folder / "linear.json").rename(earlier)
        again = ("linear_dropout_softmax", "--shapes", "4x8x8")
        result = bench(*again, "--baseline", earlier, "--fail-under", "0.0001")
        self.assertIn("baseline: holds, 1 rows compared", self.assert_ok(result).stdout.decode())


if __name__ == "__main__":
    unittest.main()
