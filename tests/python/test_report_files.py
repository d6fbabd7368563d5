"""scripts/report.py on made-up runs: the files that it reads, merges and writes, and what it refuses.

python test_report_files.py [unittest options]
"""

import errno
import json
import os
import unittest
import unittest.mock
from pathlib import Path

import made_up_runs as made_up
from report_case import ReportCase

from report.run import ReportError, Row, write


class Files(ReportCase):
    def test_merged_runs_keep_a_row_once(self):
        first, second = made_up.row((4, 8), share=0.5), made_up.row((4, 8), share=0.6)
        parts = {"table": [first, made_up.row((2, 2))], "basic": [second]}
        files = [f"{name}={self.write(made_up.bench(rows), name)}" for name, rows in parts.items()]
        path = Path(self.report("merge", "--folder", self.docs, *files).strip())
        self.assertEqual(path.name, "nvidia-h200.json")
        merged = json.loads(path.read_text(encoding="utf-8"))
        self.assertEqual([row["presets"] for row in merged["rows"]], [["table", "basic"], ["table"]])
        self.assertEqual(merged["rows"][0]["variants"], first["variants"])
        self.assertEqual([run["preset"] for run in merged["runs"]], ["table", "basic"])

    def test_masks_tell_rows_apart(self):
        operators = ("scaled_masked_softmax", "scaled_masked_softmax_dropout", "cached_attention_softmax")
        rows = [made_up.row((2, 4, 4), operator=name, mask=mask) for name in operators for mask in ("none", "causal", "padding")]
        self.assertEqual(len({Row(raw).name for raw in rows}), 9)

    def test_merged_runs_of_generation(self):
        second = made_up.generation(rows=[made_up.generated("fused", 100.0, batch=8)], prefill=[], accuracy=[])
        files = [self.write(raw, f"{i}.json") for i, raw in enumerate((made_up.generation(), second))]
        path = Path(self.report("merge", "--folder", self.docs, "--command", "both", *files).strip())
        self.assertEqual(path.name, "nvidia-h200-generate.json")
        merged = json.loads(path.read_text(encoding="utf-8"))
        self.assertEqual((merged["command"], len(merged["rows"]), len(merged["prefill"])), ("both", 9, 2))

    def test_a_file_is_written_as_a_whole_or_not(self):
        path = self.write("old", "merged.json")
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def half(file, text, **_):
            file.write_bytes(text[: len(text) // 2].encode())
            raise full

        with unittest.mock.patch.object(Path, "write_text", half), self.assertRaisesRegex(ReportError, "merged.json: cannot be written: No space"):
            write(path, made_up.table())
        self.assertEqual(path.read_text(encoding="utf-8"), "old")
        write(path, made_up.table())
        self.assertEqual(json.loads(path.read_text(encoding="utf-8")), made_up.table())
        self.assertEqual([found.name for found in path.parent.glob("merged*")], ["merged.json"])

    def test_runs_with_and_without_a_preset_are_not_merged(self):
        bench = self.write(made_up.bench([made_up.row((2, 2))]), "bench.json")
        generation = self.write(made_up.generation(), "generation.json")
        for files in ((f"table={bench}", bench), (bench, f"table={bench}"), (generation, f"table={bench}")):
            self.assertIn("expected PRESET=FILE for all runs", self.report("merge", "--folder", self.docs, *files, code=2))

    def test_runs_of_generation_with_the_same_row_are_not_merged(self):
        files = [self.write(made_up.generation(), f"{i}.json") for i in range(2)]
        self.assertRegex(self.report("merge", "--folder", self.docs, *files, code=2), r"1\.json: .* is in .*0\.json too")

    def test_runs_of_different_versions_are_not_merged(self):
        other = made_up.bench([made_up.row((2, 2))], versions={"warpfuse": "0.0.9"})
        files = [f"{i}={self.write(raw, f'{i}.json')}" for i, raw in enumerate((made_up.table(), other))]
        self.assertIn("versions: not that of", self.report("merge", "--folder", self.docs, *files, code=2))

    def test_what_is_refused(self):
        def broken(change):
            raw = made_up.table()
            change(raw)
            return raw

        for raw, said in (
            ("{", "no JSON"),
            ("[]", "format: expected warpfuse-bench-1, got None"),
            (made_up.generation(), "format: expected warpfuse-bench-1, got warpfuse-generate-1"),
            (broken(lambda raw: raw.update(complete=False)), "the run was not completed"),
            (broken(lambda raw: raw.update(rows=[])), "no rows"),
            (broken(lambda raw: raw["rows"].append(raw["rows"][0])), "1024 x 8192 float32 forward is there twice"),
            (broken(lambda raw: raw["rows"][1].pop("shape")), "rows[1]: shape is missing"),
            (broken(lambda raw: raw["rows"][1].update(shape=[0])), "rows[1]: shape: expected sizes above 0"),
            (broken(lambda raw: raw["rows"][1]["variants"][0].update(status="fine")), "status: expected ok"),
            (broken(lambda raw: raw["rows"][1]["variants"][0].update(p50_us=-1)), "p50_us: expected a number above 0"),
            (broken(lambda raw: raw["device"].update(type="cpu")), "device: type: expected cuda, got cpu"),
        ):
            path = self.write(raw, "nvidia-h200.json")
            errors = self.report("--docs", self.docs, code=2)
            self.assertIn(f"report.py: error: {path}", errors)
            self.assertIn(said, errors)
            self.assertEqual(errors.count("\n"), 1, errors)
        self.assertIn("cannot be read", self.report("--docs", self.docs / "none", code=2))


if __name__ == "__main__":
    unittest.main()
