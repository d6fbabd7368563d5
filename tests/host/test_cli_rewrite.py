"""warpfuse rewrite of bundles, and the option --rewrite of the commands that run models."""

import os
import shutil
import unittest

import toy_bundles
from cli_bundles import baseline, copy_of, fused, generate, write
from host_program import CHECK_FAILED, OUTPUT, USAGE, HostTestCase, folder, results, run_with_plugin


class Bundles(HostTestCase):
    def rewrite(self, bundle, out, *arguments):
        return run_with_plugin("rewrite", bundle, out, *arguments)

    def leftovers(self, out):
        return [path.name for path in out.parent.iterdir() if path.name.startswith(f"{out.name}.")]

    def test_a_bundle_comes_out_as_one(self):
        out = folder / "rewritten"
        self.assert_ok(self.rewrite(baseline, f"{out}/"))
        self.assertEqual(results(out / "bundle.json")["variant"], "rewritten")
        self.assertEqual(generate(out).stdout, generate(baseline).stdout)
        self.assert_fails(self.rewrite(baseline, out), USAGE, "--force")
        (out / "old").touch()
        self.assert_ok(self.rewrite(baseline, f"{out}/", "--force"))
        self.assertFalse((out / "old").exists())
        self.assertEqual(self.leftovers(out), [])

    def test_too_few_calls_are_a_failure(self):
        result = self.rewrite(baseline, folder / "too-few", "--require", "9")
        self.assert_fails(result, CHECK_FAILED, "of the 9 required calls were routed; nothing was written")
        self.assertFalse((folder / "too-few").exists())

    def test_a_frozen_bundle_runs(self):
        out = folder / "frozen"
        self.assert_ok(self.rewrite(baseline, out, "--freeze"))
        result = generate(out)
        self.assertEqual(result.stdout, generate(baseline).stdout)
        calls = toy_bundles.LAYERS * 24
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
            self.assert_fails(self.rewrite(copy, out, "--force"), USAGE, message)
        mine = folder / "mine"
        mine.mkdir()
        (mine / "thesis.txt").touch()
        self.assert_fails(self.rewrite(copy, mine, "--force"), USAGE, mine, "no bundle")
        self.assertTrue((mine / "thesis.txt").exists())
        self.assertEqual(sorted(path.name for path in copy.iterdir()), before)

    def test_a_failure_leaves_out_as_it_was(self):
        broken, out = copy_of(baseline, "with-a-pipe"), copy_of(baseline, "kept")
        os.mkfifo(broken / "pipe")  # cannot be copied
        (out / "old").touch()
        for to in (out, folder / "new"):
            self.assert_fails(self.rewrite(broken, to, "--force"), OUTPUT, to)
            self.assertEqual(self.leftovers(to), [])
        self.assertTrue((out / "old").exists())
        self.assertFalse((folder / "new").exists())


class OnLoad(HostTestCase):
    routed = ": 6 of 6 softmax calls routed to the plugin\n"

    def assert_rewritten(self, result):
        self.assertIn(self.routed, self.assert_ok(result).stderr.decode())
        return result

    def test_generate(self):
        result = self.assert_rewritten(generate(baseline, "--rewrite"))
        calls = toy_bundles.LAYERS * 24
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
    unittest.main()
