"""warpfuse rewrite of bundles and of files, and the option --rewrite of the commands that run models."""

import ctypes
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

from cli_bundles import baseline, copy_of, fused, generate, write
from host_program import (
    CHECK_FAILED,
    MODEL,
    OUTPUT,
    ROOT,
    USAGE,
    HostTestCase,
    folder,
    main,
    results,
    run_with_plugin,
    start,
)
from toys import LAYERS

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1


def rewrite(*arguments):
    return run_with_plugin("rewrite", *arguments)


class Bundles(HostTestCase):
    def leftovers(self, out):
        return [path.name for path in out.parent.iterdir() if path.name.startswith(f"{out.name}.")]

    def test_a_bundle_comes_out_as_one(self):
        out = folder / "rewritten"
        self.assert_ok(rewrite(baseline, f"{out}/"))
        self.assertEqual(results(out / "bundle.json")["variant"], "rewritten")
        self.assertEqual(generate(out).stdout, generate(baseline).stdout)
        self.assert_fails(rewrite(baseline, out), USAGE, "--force")
        (out / "old").touch()
        self.assert_ok(rewrite(baseline, f"{out}/", "--force"))
        self.assertFalse((out / "old").exists())
        self.assertEqual(self.leftovers(out), [])

    def test_too_few_calls_are_a_failure(self):
        result = rewrite(baseline, folder / "too-few", "--require", "9")
        self.assert_fails(result, CHECK_FAILED, "of the 9 required calls were routed; nothing was written")
        self.assertFalse((folder / "too-few").exists())

    def test_a_frozen_bundle_runs(self):
        out = folder / "frozen"
        self.assert_ok(rewrite(baseline, out, "--freeze"))
        result = generate(out)
        self.assertEqual(result.stdout, generate(baseline).stdout)
        calls = LAYERS * 24
        self.assertEqual(self.softmax_calls(result), (calls, calls))

    def test_out_is_never_over_in_nor_over_other_folders(self):
        copy = copy_of(baseline, "careful")
        before = sorted(path.name for path in copy.iterdir())
        link = folder / "link-to-careful"
        link.symlink_to(copy)
        for out, message in (
            (link, "OUT is IN"),
            (copy / "model.pt", "OUT lies in IN"),
            (copy / "new", "OUT lies in IN"),
            (folder, "OUT contains IN"),
        ):
            self.assert_fails(rewrite(copy, out, "--force"), USAGE, message)
        mine = folder / "mine"
        mine.mkdir()
        (mine / "thesis.txt").touch()
        self.assert_fails(rewrite(copy, mine, "--force"), USAGE, mine, "no bundle")
        self.assertTrue((mine / "thesis.txt").exists())
        self.assertEqual(sorted(path.name for path in copy.iterdir()), before)

    def test_a_failure_leaves_out_as_it_was(self):
        broken, out = copy_of(baseline, "with-a-pipe"), copy_of(baseline, "kept")
        os.mkfifo(broken / "pipe")  # cannot be copied
        (out / "old").touch()
        for to in (out, folder / "new"):
            self.assert_fails(rewrite(broken, to, "--force"), OUTPUT, to)
            self.assertEqual(self.leftovers(to), [])
        self.assertTrue((out / "old").exists())
        self.assertFalse((folder / "new").exists())

    def test_a_signal_leaves_no_half_bundle(self):
        source = copy_of(baseline, "of-many-files")
        for i in range(10_000):  # which take some time to copy
            (source / str(i)).touch()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            out = folder / f"ended-by-{number}"
            with self.subTest(number), start("rewrite", source, out) as process:
                while process.poll() is None and not self.leftovers(out):
                    time.sleep(0.001)
                self.assertIsNone(process.poll(), "nothing was seen of the bundle before its end")
                process.send_signal(number)
                self.assertEqual(process.wait(60), -number)
                self.assertEqual(self.leftovers(out), [])
                self.assertFalse(out.exists())

    def test_a_bundle_that_may_not_be_removed_is_not_replaced(self):
        out = copy_of(baseline, "kept-by-its-mode")
        out.chmod(0o555)
        self.addCleanup(out.chmod, 0o755)
        bound_root = lambda: ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE)  # whom modes do not bind
        with start("rewrite", baseline, out, "--force", preexec_fn=bound_root) as process:
            stderr = process.communicate(timeout=120)[1].decode()
        self.assertEqual((process.returncode, stderr), (OUTPUT, f"warpfuse: error: {out}: cannot be replaced: what is in it may not be removed\n"))
        self.assertEqual(results(out / "bundle.json")["variant"], "baseline")
        self.assertEqual(self.leftovers(out), [])

    def test_a_bundle_that_may_not_be_written_to_comes_out_as_one_that_may(self):
        source, out = copy_of(baseline, "read-only"), folder / "of-read-only"
        source.chmod(0o555)
        self.addCleanup(source.chmod, 0o755)
        self.assert_ok(rewrite(source, out))
        self.assertEqual(out.stat().st_mode & 0o700, 0o700)


class Files(HostTestCase):
    model = baseline / "model.pt"

    def test_a_file_comes_out_as_one(self):
        out = folder / "out.pt"
        self.assert_fails(rewrite(self.model, out, "--require", 7), CHECK_FAILED, "nothing was written")
        self.assertFalse(out.exists())
        self.assertIn("6 of 6 softmax calls routed to the plugin\n", self.said(rewrite(self.model, "--dry-run")))
        self.assert_ok(rewrite(self.model, out))
        self.assert_fails(rewrite(self.model, out), USAGE, "--force")
        self.assert_ok(rewrite(self.model, out, "--force", "--freeze", "--require", 6))
        self.assertIn("0 of 0 softmax calls routed to the plugin, 6 were there", self.said(rewrite(out, "--dry-run")))

    def test_out_is_never_over_in(self):
        file = copy_of(baseline, "with-a-file") / "model.pt"
        self.assert_fails(rewrite(file, f"{file.parent}/./model.pt", "--force"), USAGE, "OUT is IN")
        self.assert_fails(rewrite(file, file.parent, "--force"), USAGE, "OUT contains IN")
        self.assertEqual(file.read_bytes(), self.model.read_bytes())
        self.assert_fails(rewrite(self.model, ""), USAGE, "OUT: expected a path")

    def test_a_link_to_nothing_is_not_replaced_unasked(self):
        for name, source in (("file", self.model), ("folder", copy_of(baseline, "linked"))):
            link = folder / f"link-to-no-{name}"
            link.symlink_to(folder / f"no-{name}")
            self.assert_fails(rewrite(source, link), USAGE, link, "--force")
            self.assertTrue(link.is_symlink())

    def test_files_that_cannot_be_read_or_written(self):
        self.assert_fails(rewrite(write("text.pt", "text"), "--dry-run"), MODEL, "text.pt")
        self.assert_fails(rewrite(self.model, folder / "no" / "out.pt"), OUTPUT, "out.pt")

    @unittest.skipIf(importlib.util.find_spec("transformers") is None, "transformers is not installed")
    def test_the_model_of_the_demo(self):
        tokenizer, path = ROOT / "traced_models" / "wikitext-small", folder / "gpt2.pt"
        subprocess.run([sys.executable, "-B", ROOT / "scripts" / "trace_gpt2.py", tokenizer, "cpu", path], check=True)
        for command, says in (
            (("verify", path, path, "--input", "B,T:int64:0..4096", "--batch", "1,3", "--lengths", "1,256,257"), "both raise in 2 of 6"),
            (("generate", "-m", path, "--tokenizer", tokenizer, "-p", "The river", "-n", 3), "plugin: 12 of 12 softmax calls"),
        ):
            result = self.assert_ok(run_with_plugin(command[0], "--rewrite", *command[1:], "--device", "cpu"))
            text = result.stdout.decode() + result.stderr.decode()
            self.assertIn("4 of 4 softmax calls routed to the plugin", text)
            self.assertIn(says, text)


class OnLoad(HostTestCase):
    routed = ": 6 of 6 softmax calls routed to the plugin\n"

    def assert_rewritten(self, result):
        self.assertIn(self.routed, self.assert_ok(result).stderr.decode())
        return result

    def test_generate(self):
        result = self.assert_rewritten(generate(baseline, "--rewrite"))
        calls = LAYERS * 24
        self.assertEqual(self.softmax_calls(result), (calls, calls))
        self.assertEqual(result.stdout, generate(baseline).stdout)
        self.assertIn("0 of 0 softmax calls routed to the plugin, 6 were there", generate(fused, "--rewrite").stderr.decode())

    def test_perplexity(self):
        text = write("text.txt", "The river rises in the hills north of the town. " * 8)
        command = ("perplexity", "-m", baseline, "--text", text, "--json")
        found = [self.json_of(run_with_plugin(*command, *option)) for option in ((), ("--rewrite",))]
        self.assertAlmostEqual(found[1]["perplexity"] / found[0]["perplexity"], 1, delta=1e-4)

    def test_bench_generate_has_one_more_variant(self):
        parent, path = folder / "benched", folder / "benched.json"
        for bundle in (baseline, fused):
            shutil.copytree(bundle, parent / bundle.name)
        options = ("-m", parent, "--prompt", 8, "-n", 4, "--rounds", 1, "--device", "cpu", "--json", path, "--rewrite")
        self.assert_rewritten(run_with_plugin("bench", "generate", *options))
        document = results(path)
        self.assertEqual([row["variant"] for row in document["rows"]], ["baseline", "fused", "rewritten"])
        self.assertEqual([row["variant"] for row in document["accuracy"]], ["fused", "rewritten"])


if __name__ == "__main__":
    main()
