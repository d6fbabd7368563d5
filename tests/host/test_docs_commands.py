"""README and docs: every command of their code blocks runs, with the shipped model on the CPU.

    WARPFUSE_HOST=... WARPFUSE_PLUGIN=... WARPFUSE_BUNDLES=... python test_docs_commands.py [unittest options]

Exit code 77: the bundles were not built.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

import bare_models
from host_program import HOST, ROOT, HostTestCase, bundles_or_skip, folder

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)

# Commands that are not run here, and why.
EXCUSED = {
    r"^scripts/setup\.sh": "downloads; .ci/run begins with it",
    r"^cmake ": "builds everything; .ci/run does, and loading.linked installs",
    r"^warpfuse serve|^curl |^build/examples/server ": "test_serve.py and test_serve_example.py run them",
    r"^docker ": "needs NVIDIA's images",
    r"^scripts/demo\.sh": "builds everything, then runs the command that it prints",
    r"--device cuda|--shapes table": "measures a GPU",
}
# What a page names, and what stands for it here, or less of the same work.
SMALLER = {
    "15496 995": "1416 11",
    "--set steps=200 --set batch=4 --set context=128":
        "--set steps=2 --set batch=1 --set context=40 --set layers=1 --set width=32 --set vocab_size=300",
    "warpfuse selftest": "warpfuse selftest --operators sample_tokens",  # test_cli_selftest.py runs it whole
    "-m MODEL": "-m build/release/bundles/wikitext-small/fused-float32 -n 4",
    "-m gpt2.pt --tokenizer gpt2": "-m small.pt --tokenizer gpt2",  # whose ids the tokenizer has
    "--batch 1,4 --lengths 64,256": "--batch 1 --lengths 8 --rounds 1",
    "--lengths 1,7,1024,1025": "--lengths 1,7,33,1025",
    "--shapes 12x1024x1024": "--shapes 2x64x64 --quick",
    "-m bundles/distilgpt2 -m bundles/gpt2 --batch 1,32 --prompt 32,512 --prefill 8x1024":
        "-m bundles/distilgpt2 --batch 1 --prompt 8 --prefill 1x8 -n 4 --rounds 1 --graph off",
    "--text wikitext-2/wiki.valid.tokens --tokenizer gpt2":
        "--text wikitext-2/valid.txt --tokenizer gpt2 --batch 1 --prompt 8 -n 4 --rounds 1 --graph off",
}  # fmt: skip


def commands():
    """Page, command, and what the page exported before it, of each line that begins with a prompt."""
    for page in PAGES:
        exports = []
        for language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                if language or not line.startswith("$ "):
                    continue
                if line.startswith("$ export "):
                    exports.append(line[2:])
                else:
                    yield page, line[2:], exports


class Commands(HostTestCase):
    @classmethod
    def setUpClass(cls):
        bundles = bundles_or_skip()
        for name in ("bundles", "build", ".venv/bin", "wikitext-2"):
            (folder / name).mkdir(parents=True)
        for name, target in {
            "bundles/distilgpt2": bundles,
            "build/release": pathlib.Path(HOST).parents[1],  # of any preset
            "gpt2": ROOT / "traced_models" / "wikitext-small",  # a tokenizer
            "traced_models": ROOT / "traced_models",
            "t5.pt": bundles / "baseline-float32" / "model.pt",  # two arguments of [B, T], too
        }.items():
            (folder / name).symlink_to(target)
        bare_models.save_causal(folder / "gpt2.pt", positions=1024, vocabulary=50257)
        bare_models.save_causal(folder / "small.pt", vocabulary=4096)
        python = folder / ".venv" / "bin" / "python"  # not a link, which would miss its packages
        python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        python.chmod(0o755)
        prompts = [{"prompt": "The river", "id": 7}, {"prompt": "In 1998"}]
        (folder / "prompts.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
        for name in ("test.txt", "valid.txt"):
            text = " \n = The river = \n \n" + " The river rises in the hills north of the town .\n" * 40
            (folder / "wikitext-2" / name).write_text(text)

    def test_every_command(self):
        # A page says itself how the program is found, whatever the shell of these tests has been told.
        path = [each for each in os.environ["PATH"].split(":") if not (pathlib.Path(each) / "warpfuse").exists()]
        environment = os.environ | {"PATH": ":".join(path)}
        used, ran = set(), 0
        for page, command, exports in commands():
            reason = next((why for pattern, why in EXCUSED.items() if re.search(pattern, command)), None)
            if reason:
                used.add(reason)
                continue
            for named, smaller in SMALLER.items():
                if named in command:
                    used.add(named)
                    command = command.replace(named, smaller)
            with self.subTest(page.name, command=command):
                script = "\n".join(["set -e", *exports, command])
                done = subprocess.run(["bash", "-c", script], cwd=folder, env=environment, capture_output=True, timeout=300)
                self.assertEqual(done.returncode, 0, done.stderr.decode())
                self.assertTrue(done.stdout, command)
                ran += 1
        self.assertGreater(ran, 10)
        self.assertEqual(used, {*EXCUSED.values(), *SMALLER})  # none of them outlives its command

    def test_commands_stand_in_fenced_blocks(self):
        outside = re.compile(r"^    \$? ?(\.venv/|build/|scripts/|cmake |warpfuse |python3? )", re.M)
        for page in PAGES:
            self.assertIsNone(outside.search(page.read_text(encoding="utf-8")), page)

    def test_every_block_is_of_a_language_that_a_test_runs(self):
        for page in PAGES:
            for language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
                if not language:
                    self.assertRegex(block, r"^(\$ | traced model)", page)  # commands, or a drawing of folders
                    continue
                self.assertIn(language, ("cpp", "python", "cmake", "nginx"), page)
                runs = page.name == "README.md" or page.parent.name == "operators"
                self.assertTrue(runs or page.name in ("adding_an_operator.md", "serve.md"), f"{page}: {block}")


if __name__ == "__main__":
    unittest.main()
