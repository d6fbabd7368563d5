"""What the shell scripts share, in scripts/common.sh.

python test_scripts.py [unittest options]
"""

import shlex
import subprocess
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


class Quoting(unittest.TestCase):
    def quoted(self, *words):
        command = ["bash", "-c", '. "$0"; quoted "$@"', SCRIPTS / "common.sh", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def test_a_printed_command_can_be_pasted(self):
        words = ["-p", "On September 14, the storm", "-n", "110", "", "it's", "$HOME", "a\\nb", "*"]
        self.assertEqual(shlex.split(self.quoted(*words)), words)
        self.assertEqual(self.quoted("-n", "110", "a/b.txt"), "-n 110 a/b.txt")

    def test_the_demo_prints_such_a_command(self):
        demo = (SCRIPTS / "demo.sh").read_text(encoding="utf-8")
        said = next(line for line in demo.splitlines() if line.startswith("say "))
        self.assertIn('$(quoted "${REST[@]}")', said)
        self.assertNotIn("${REST[*]}", demo)


class Words(unittest.TestCase):
    def test_old_words_are_found(self):
        lines = (SCRIPTS / "lint.sh").read_text(encoding="utf-8").splitlines()
        building = "\n".join(line for line in lines if line.startswith("old"))
        command = ["bash", "-c", f'{building}\nprintf %s "$old"']
        pattern = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for old in ("the likeliest", "kMostRows = 1", "kLeastBytes", "kFewestRounds", "Contestant c", "a contestant",
                    "softmax_census.h", "SoftmaxCensus", "--shapes seed", "preset `seed`", "2 us a call", "nats a token"):  # fmt: skip
            self.assertRegex(old, pattern)
        for new in ("kMaxRows", "kMinRounds", "kMostly", "until a token is due", "--seed 7", "us/call"):
            self.assertNotRegex(new, pattern)


if __name__ == "__main__":
    unittest.main()
