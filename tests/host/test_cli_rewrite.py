"""warpfuse rewrite of bundles: OUT is the old folder or the new one, whatever happens."""

import json
import os
import unittest

from cli_bundles import baseline, copy_of, folder, generate
from host_program import OUTPUT, USAGE, HostTestCase, run_with_plugin


class Bundles(HostTestCase):
    def rewrite(self, bundle, out, *arguments):
        return run_with_plugin("rewrite", bundle, out, *arguments)

    def leftovers(self, out):
        return [path.name for path in out.parent.iterdir() if path.name.startswith(f"{out.name}.")]

    def test_a_bundle_comes_out_as_one(self):
        out = folder / "rewritten"
        self.assert_ok(self.rewrite(baseline, f"{out}/"))
        self.assertEqual(json.loads((out / "bundle.json").read_text())["variant"], "rewritten")
        self.assertEqual(generate(out).stdout, generate(baseline).stdout)
        self.assert_fails(self.rewrite(baseline, out), USAGE, "--force")
        (out / "old").touch()
        self.assert_ok(self.rewrite(baseline, f"{out}/", "--force"))
        self.assertFalse((out / "old").exists())
        self.assertEqual(self.leftovers(out), [])

    def test_a_failure_leaves_out_as_it_was(self):
        broken, out = copy_of(baseline, "with-a-pipe"), copy_of(baseline, "kept")
        os.mkfifo(broken / "pipe")  # cannot be copied
        (out / "old").touch()
        for to in (out, folder / "new"):
            self.assert_fails(self.rewrite(broken, to, "--force"), OUTPUT, to)
            self.assertEqual(self.leftovers(to), [])
        self.assertTrue((out / "old").exists())
        self.assertFalse((folder / "new").exists())


if __name__ == "__main__":
    unittest.main()
