"""README and docs: their Python examples run, their tables say what the JSON of the benchmarks says, their links lead somewhere.

    WARPFUSE_PLUGIN=.../libwarpfuse.so python test_docs.py [--device cpu|cuda] [unittest options]

Exit code 77: the device is not there.
"""

import os
import pathlib
import re
import sys
import unittest

import test_operators
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PERFORMANCE = DOCS / "performance.md"
OPERATORS = sorted((DOCS / "operators").glob("*.md"))
OPTION = r"--[a-z][\w-]*"
INSTALLED = "/opt/warpfuse/lib/libwarpfuse.so"
sys.path.insert(0, str(ROOT / "scripts"))

from report.generation import decode_runs
from report.run import Bench, Generation, Work
from report.text import microseconds, percent, rate, times


def blocks(path, language):
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), re.S)


def table(path, *columns):
    """Rows of the table whose header begins with these columns."""
    lines = iter(path.read_text(encoding="utf-8").splitlines())
    cells = lambda line: [cell.strip().strip("*`") for cell in line.strip("| ").split("|")]
    header = next(names for line in lines if (names := cells(line))[: len(columns)] == list(columns))
    next(lines)
    found = []
    for line in lines:
        if not line.startswith("|"):
            return [dict(zip(header, row, strict=True)) for row in found]
        found.append(cells(line))
    raise AssertionError(f"{path.name}: the table ends the file")


class Examples(unittest.TestCase):
    def test_python_examples(self):
        for path in (README, *OPERATORS):
            examples = blocks(path, "python")
            self.assertTrue(examples, path)
            for example in examples:
                with self.subTest(path.name, example=example), torch.device(test_operators.DEVICE):
                    names = {"torch": torch}
                    exec(example.replace(INSTALLED, os.environ["WARPFUSE_PLUGIN"]), names)
                    for value in names.values():
                        if isinstance(value, torch.Tensor) and value.requires_grad and value.is_leaf:
                            self.assertTrue(value.grad.ne(0).any())

    def test_each_family_has_examples_in_both_languages(self):
        for path in OPERATORS:
            self.assertTrue(blocks(path, "cpp"), path)


class Figures(unittest.TestCase):
    """Each number of a table beside its row of the JSON, written as the generated pages write it."""

    @classmethod
    def setUpClass(cls):
        cls.bench = Bench(DOCS / "benchmarks" / "nvidia-h200.json")

    def row(self, operator, name, dtype, direction):
        found = [
            row
            for row in self.bench.rows
            if (row.key.operator, row.key.dtype, row.direction) == (operator, dtype, direction)
            and row.key.title.removeprefix(f"{operator} ") == name
        ]
        self.assertEqual(len(found), 1, (operator, name, dtype, direction))
        return found[0]

    def assert_shown(self, line, row):
        """The columns that a table has; a speed-up is over ATen, one kernel's or a chain's."""
        ours, aten = row.time("warpfuse"), row.time("chain") or row.time("aten")
        figures = {
            "time": f"{microseconds(ours)} us", "time us": microseconds(ours), "warpfuse us": microseconds(ours),
            "share": percent(row.share("warpfuse")), "ATen us": microseconds(aten), "speed-up": times(aten / ours),
            "softmax alone us": microseconds(row.time("softmax")),
        }  # fmt: skip
        with self.subTest(line):
            self.assertTrue(shown := figures.keys() & line.keys())
            self.assertEqual({name: line[name] for name in shown}, {name: figures[name] for name in shown})

    def test_readme(self):
        rows = table(README, "operator", "shape", "time", "against")
        self.assertEqual(len(rows), 5)
        *rows, step = rows
        for line in rows:
            name, _, (dtype, direction) = (*line["shape"].rpartition(", ")[:2], line["shape"].rpartition(", ")[2].split())
            self.assert_shown(line, self.row(line["operator"], name, dtype, direction))
            self.assertEqual(f"NVIDIA {line['GPU']}", self.bench.device_name)
        run = Generation(DOCS / "benchmarks" / "nvidia-h200-steps.json")
        self.assertEqual(step["shape"], "distilgpt2, one sequence, float16")
        rates = {variant: run.find(Work("distilgpt2", "float16", 1, 32, ""), variant, True).p50 for variant in ("steps", "baseline")}
        self.assertEqual(step["time"], f"{microseconds(1e6 / rates['steps'])} us per token")
        self.assertEqual(step["speed-up"], times(rates["steps"] / rates["baseline"]))
        self.assertEqual(run.raw["device"]["name"], f"NVIDIA {step['GPU']}")

    def test_performance(self):
        lines = table(PERFORMANCE, "operator", "shape", "dtype", "pass")
        self.assertGreaterEqual(len(lines), 12)
        for line in lines:
            self.assert_shown(line, self.row(line["operator"], line["shape"], line["dtype"], line["pass"]))

    def test_the_ladder(self):
        lines = table(DOCS / "operators" / "softmax.md", "algorithm", "float32 us")
        for column, dtype in ((0, "float32"), (1, "bfloat16")):
            row = self.row("softmax", "1024 x 8192", dtype, "forward")
            for line in lines:
                name = line["algorithm"].split()[0].lower()
                cells = list(line.values())[1:]
                with self.subTest(line, dtype=dtype):
                    self.assertEqual(cells[2 * column], microseconds(row.time(name)))
                    self.assertEqual(cells[2 * column + 1], percent(row.share(name)))

    def test_dropout(self):
        lines = table(DOCS / "operators" / "dropout.md", "H200, training, p = 0.2")
        self.assertGreaterEqual(len(lines), 4)
        for line in lines:
            operator, _, rest = next(iter(line.values())).partition(" ")
            name, dtype, direction = rest.rsplit(" ", 2)
            self.assert_shown(line, self.row(operator, name, dtype, direction))

    def test_generation(self):
        run = Generation(DOCS / "benchmarks" / "nvidia-h200-generate.json")
        lines = table(PERFORMANCE, "distilgpt2")
        self.assertEqual(len(lines), 7)
        for line in lines:
            dtype, what = line["distilgpt2"].split(", ", 1)
            work = Work("distilgpt2", dtype, *map(int, re.findall(r"\d+", what)[:2]), "")
            for variant in ("baseline", "fused", "sdpa"):
                found = f"{run.prefill(work, variant).p50:.2f}" if "prefill" in what else rate(run.find(work, variant, True).p50)
                self.assertEqual(line[variant], found, line)

    def test_decode_steps(self):  # the tables themselves are those of scripts/report.py --check
        page = (DOCS / "operators" / "decode.md").read_text(encoding="utf-8")
        for path in decode_runs(DOCS):
            self.assertIn(f"(../benchmarks/{path.name})", page)

    def test_where_it_is_slower_than_aten_is_named(self):
        text = PERFORMANCE.read_text(encoding="utf-8").split("## Where it loses")[1]
        compared = [row for row in self.bench.rows if row.time("aten") and row.time("warpfuse")]
        self.assertGreater(len(compared), len(self.bench.rows) // 2)
        slower = [row for row in compared if row.time("aten") < row.time("warpfuse")]
        # The page names the worst, and how bad the others are at most: "And N more", or the last row that is listed.
        least = float(re.findall(r"([\d.]+)x", text.split("<!-- End of what it writes. -->")[0])[-1])
        for row in slower:
            ratio = times(row.time("aten") / row.time("warpfuse"))
            cells = re.escape(f"| {row.key.title} | {row.key.dtype} | {row.direction} |")
            with self.subTest(row.key.title):
                if float(ratio[:-1]) < least:
                    self.assertRegex(text, rf"{cells}.* ATen \| {ratio} \|")


class Pages(unittest.TestCase):
    def test_lengths(self):
        for path in (README, PERFORMANCE):
            self.assertLessEqual(len(path.read_text(encoding="utf-8").splitlines()), 150, path)
        first_code = README.read_text(encoding="utf-8").split("```cpp")[0].count("\n")
        self.assertLess(first_code, 40)

    def test_scripts_that_pages_name_take_what_pages_give_them(self):
        named = 0
        for path in (README, *DOCS.rglob("*.md")):
            for script, rest in re.findall(r"`((?:scripts|tests|traced_models)/[\w/]+\.(?:sh|py))([^`]*)`", path.read_text(encoding="utf-8")):
                with self.subTest(path.name, script=script, rest=rest):
                    text = (ROOT / script).read_text(encoding="utf-8")
                    known = set(re.findall(OPTION, text))
                    if "parse_options" in text or "parse_all_options" in text:  # of scripts/common.sh
                        known |= {"--torch", "--preset"}
                    self.assertLessEqual(set(re.findall(OPTION, rest)), known)
                    named += 1
        self.assertGreater(named, 20)

    def test_links_between_pages(self):
        anchor = lambda title: re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        for path in (README, *DOCS.rglob("*.md")):
            text = path.read_text(encoding="utf-8")
            for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
                name, _, part = link.partition("#")
                target = path if not name else (path.parent / name)
                with self.subTest(path.name, link=link):
                    self.assertTrue(target.exists())
                    if part:
                        titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.M)
                        self.assertIn(part, [anchor(title) for title in titles])


if __name__ == "__main__":
    sys.exit(test_operators.main())
