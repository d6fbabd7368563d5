"""warpfuse tune on a GPU: from a table without its lines for one function it writes one that is used, within its time."""

import os
import time

from host_program import (
    USAGE,
    HostTestCase,
    folder,
    gpu_names,
    main,
    results,
    run_with_plugin,
    start,
    wait_until_ctrl_c_is_noted,
)


def shipped():
    return run_with_plugin("info", "--tuning").stdout.decode()


def without_columns():
    """The shipped table without what keeps columns in registers."""
    lines = shipped().splitlines()
    return "\n".join(line for line in lines if " column " not in line or line.split()[-3] == "0") + "\n"


class OnAGpu(HostTestCase):
    @classmethod
    def setUpClass(cls):
        cls.start = folder / "start.txt"
        cls.start.write_text(without_columns())
        cls.table = folder / "tuned.txt"
        begun = time.monotonic()
        cls.result = run_with_plugin(
            "tune", "--quick", "--minutes", "0.75", "--functions", "columns", "--tuning", cls.start, "--out", cls.table
        )
        cls.seconds = time.monotonic() - begun

    def test_it_finds_lines_that_are_faster_in_its_time(self):
        self.assert_ok(self.result)
        self.assertLess(self.seconds, 50)
        text = self.table.read_text()
        self.assertRegex(text, r"\A# gpu \d+\.\d \d+ " + gpu_names()[0] + r"\n# warpfuse tune: \d+ of \d+ classes of rows ")
        self.assertGreater(sum(" column " in line and line.split()[5] != "0" for line in text.splitlines() if line[0] != "#"), 1)

    def test_the_table_is_used(self):
        os.environ["WARPFUSE_TUNING"] = str(self.table)
        try:
            info = self.json_of(run_with_plugin("info", "--json"))
        finally:
            del os.environ["WARPFUSE_TUNING"]
        self.assertEqual(info["tuning"], f"file {self.table}")

    def test_columns_are_faster_with_it(self):
        times = {}
        for name in (self.start, self.table):
            path = folder / "bench.json"
            self.assert_ok(run_with_plugin(
                "bench", "softmax", "--shapes", "64x1024x512@1", "--quick", "--algorithms", "none", "--tuning", name, "--json", path
            ))  # fmt: skip
            times[name] = results(path)["rows"][0]["variants"][0]["p50_us"]
        self.assertLess(times[self.table], 0.95 * times[self.start])

    def test_ctrl_c_keeps_what_was_found(self):
        out = folder / "interrupted.txt"
        process = start("tune", "--functions", "columns", "--out", out, "--tuning", self.start)
        wait_until_ctrl_c_is_noted(process)
        time.sleep(8)  # for the libraries and a few classes
        self.assertRegex(self.interrupt(process)[1], r"warpfuse: error: interrupted after \d+ of \d+ classes of rows; ")
        self.assertRegex(out.read_text(), r"\A# gpu ")

    def test_a_bad_start_is_refused(self):
        bad = folder / "bad.txt"
        bad.write_text("no table\n")
        self.assert_fails(run_with_plugin("tune", "--tuning", bad), USAGE, f"--tuning {bad}: line 1")


if __name__ == "__main__":
    main(gpus=1)
