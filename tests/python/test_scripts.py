"""Scripts: what they share in scripts/common.sh, clients of a server, and what test_gpu.sh keeps of an earlier report.

python test_scripts.py [unittest options]
"""

import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import unittest
from pathlib import Path
from tempfile import TemporaryDirectory

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import serve_load


class Quoting(unittest.TestCase):
    def quoted(self, *words):
        command = ["bash", "-c", '. "$0"; quoted "$@"', SCRIPTS / "common.sh", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def test_a_printed_command_can_be_pasted(self):
        words = ["-p", "On September 14, the storm", "-n", "110", "", "it's", "$HOME", "a\\nb", "*"]
        self.assertEqual(shlex.split(self.quoted(*words)), words)
        self.assertEqual(self.quoted("-n", "110", "a/b.txt"), "-n 110 a/b.txt")


class SetUp(unittest.TestCase):
    """A checkout whose set-up is a link to another one's."""

    def setUp(self):
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root, self.venv = Path(folder.name) / "checkout", Path(folder.name).resolve() / "venv"
        shutil.copytree(SCRIPTS, self.root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        (self.venv / "bin").mkdir(parents=True)
        (self.root / ".venv").symlink_to(self.venv)
        # A set-up that is done again fails; packages are not looked for.
        for name, text in (("python", "exit 1"), ("dpkg-query", "echo ok installed")):
            (self.venv / "bin" / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            (self.venv / "bin" / name).chmod(0o755)

    def run_bash(self, command, **environment):
        cleared = {name: "" for name in ("WARPFUSE_PYTHON", "CUDACXX")}
        run = subprocess.run(["bash", "-c", command], env=os.environ | cleared | environment, cwd=self.root,
                             capture_output=True, text=True, check=True)  # fmt: skip
        return run.stdout.strip()

    def test_a_loaded_environment_is_the_same_set_up(self):
        own = str(self.venv / "bin" / "python")
        folder = lambda torch, python: self.run_bash(f". scripts/common.sh; setup_folder '{torch}'", WARPFUSE_PYTHON=python)
        for torch, python, name in (("", "", ".venv"), ("", own, ".venv"), ("", "/usr/bin/python3", ".venv-named"),
                                    ("2.15.0", own, ".venv-torch-2.15.0")):  # fmt: skip
            self.assertEqual(folder(torch, python), str(self.root / name))

    def test_what_is_there_is_not_done_again(self):
        stamp = "{ cat scripts/requirements/*.txt scripts/setup.sh; echo '  %s'; } | sha256sum > .venv/stamp"
        own, nvcc = str(self.venv / "bin" / "python"), str(self.venv / "nvcc")
        named = "/usr/local/cuda/bin/nvcc"
        (self.venv / "warpfuse.env").write_text("as it was", encoding="utf-8")
        for stamped, environment in (("", {}), ("", {"WARPFUSE_PYTHON": own, "CUDACXX": nvcc}),
                                     (named, {"CUDACXX": named}), (named, {"WARPFUSE_PYTHON": own, "CUDACXX": named})):  # fmt: skip
            with self.subTest(stamped, environment=environment):
                self.run_bash(stamp % stamped)
                self.assertEqual(self.run_bash(f"PATH={self.venv}/bin:$PATH scripts/setup.sh 2>&1", **environment), "")
                self.assertEqual((self.venv / "warpfuse.env").read_text(encoding="utf-8"), "as it was")
        self.assertFalse((self.root / ".venv-named").exists())


class Load(unittest.TestCase):
    def test_a_server_that_goes_ends_the_load(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=lambda: server.accept()[0].close()).start()
            with self.assertRaises(ConnectionError):
                serve_load.load(server.getsockname()[1], [{}], 1, 0.2, 0.1, sorted(os.sched_getaffinity(0))[:1])


class GpuReport(unittest.TestCase):
    """scripts/test_gpu.sh with programs that pass at once."""

    def setUp(self):
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "scripts").mkdir()
        for name in ("common.sh", "test_gpu.sh"):
            shutil.copy(SCRIPTS / name, self.root / "scripts")
        programs = self.root / "build" / "release" / "bin"
        programs.mkdir(parents=True)
        for name in ("warpfuse", "warpfuse_tests", "warpfuse_host_tests", "warpfuse_broken_kernels", "nvidia-smi"):
            (programs / name).write_text("#!/bin/sh\necho 7 assertions\n", encoding="utf-8")
            (programs / name).chmod(0o755)
        self.environment = os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}", "WARPFUSE_PYTHON": sys.executable, "WARPFUSE_COMMIT": "abc",
        }  # fmt: skip
        self.report = self.root / "report.md"

    def rows(self, *arguments):
        command = [self.root / "scripts" / "test_gpu.sh", "--report", self.report, *arguments]
        result = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        lines = self.report.read_text(encoding="utf-8").splitlines()
        return result.returncode, lines[lines.index("|---|---|--:|---|") + 1 :]

    def test_groups_have_gpus_of_their_own(self):
        programs = self.root / "build" / "release" / "bin"
        smi = '#!/bin/sh\ncase $1 in --list-gpus) printf "GPU\\n%.0s" $(seq $GPUS) ;; *) echo 81559 ;; esac\n'
        (programs / "nvidia-smi").write_text(smi, encoding="utf-8")
        for name in ("warpfuse_tests", "warpfuse_host_tests"):
            text = '#!/bin/sh\necho "assertions on $CUDA_VISIBLE_DEVICES;"\n'
            (programs / name).write_text(text, encoding="utf-8")
        for gpus, visible, orders in ((1, "", ["0", "0", "0"]), (4, "", ["0,1,2,3", "2,0,1,3", "3,0,1,2"]),
                                      (4, "3", ["3", "3", "3"])):  # fmt: skip
            self.environment |= {"GPUS": str(gpus), "CUDA_VISIBLE_DEVICES": visible}
            _, rows = self.rows("--only", "^Catch2, (kernels|other)|units")
            found = {row.split(" | ")[0][2:]: row for row in rows}
            for name, order in zip(("Catch2, kernels", "Catch2, kernels with 99 KB of shared memory and no clusters",
                                    "host program, units"), orders, strict=True):  # fmt: skip
                self.assertIn(f"assertions on {order};", found[name])
            self.assertIn(f"assertions on {orders[0]};", found["Catch2, other GPU cases"])

    def test_parts_run_each_case_once(self):
        programs = self.root / "build" / "release" / "bin"
        for name, text in (("nproc", "echo 18"), ("nvidia-smi", 'case $1 in --list-gpus) echo GPU ;; *) echo 81559 ;; esac')):
            (programs / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            (programs / name).chmod(0o755)
        # Each release of Catch2 lists names by options of its own, and takes a file without names for no filter.
        for version, listing in (("2.13", "--list-test-names-only"), ("3.7", "--list-tests --verbosity quiet")):
            for names, result in (("first\nsecond", "passed"), ("", "**failed** (1)")):
                (programs / "warpfuse_tests").write_text(
                    "#!/bin/sh\ncase $* in\n"
                    f'--libidentify) echo "version:       {version}" ;;\n'
                    f'"{listing} "*) printf "{names}" ;;\n'
                    '--input-file*) echo "$(cat "$2"): assertions" ;;\n*) exit 1 ;;\nesac\n', encoding="utf-8"
                )  # fmt: skip
                with self.subTest(version=version, names=names):
                    self.report.unlink(missing_ok=True)
                    _, (row,) = self.rows("--only", "^Catch2, kernels$")
                    self.assertEqual(row.split(" | ")[1], result)
                    self.assertEqual(row.count("assertions"), len(names.splitlines()))

    def test_only_keeps_the_other_rows(self):
        # Neither a build of the PTX nor bundles are here, and the export's folder is.
        (self.root / "build" / "release" / "bundles" / "wikitext-small").mkdir(parents=True)
        before = ["| export of the small model | passed | 9 s | |",
                  "| Catch2, contexts on GPUs | skipped | 9 s | |",
                  "| host program, units | **failed** (1) | 9 s | |",
                  "| Catch2, kernels of the PTX for 8.0 alone | passed | 9 s | |",
                  "| generate | passed | 9 s | |"]  # fmt: skip
        self.report.write_text("\n".join(["| commit | abc |", *before]), encoding="utf-8")
        code, rows = self.rows("--only", "units")
        self.assertEqual(rows[:2] + rows[3:], before[:2] + before[3:])
        self.assertRegex(rows[2], r"\| host program, units \| passed \| \d+ s \| 7 assertions *\|")
        self.assertEqual(code, 0)
        self.assertIn("4 passed, 0 failed, 1 skipped", self.report.read_text(encoding="utf-8"))
        code, rows = self.rows("--only", "selftest")
        self.assertEqual(len(rows), 6)
        self.assertIn("| host program, selftest | passed", rows[5])
        # A row that failed fails the run as long as it is there.
        self.report.write_text("\n".join(["| commit | abc |", *before]), encoding="utf-8")
        self.assertEqual(self.rows("--only", "selftest")[0], 1)

    def test_only_of_no_entry(self):
        self.report.write_text("| commit | abc |\n|---|---|--:|---|\n| generate | passed | 9 s | |", encoding="utf-8")
        before = self.report.read_text(encoding="utf-8")
        self.assertEqual(self.rows("--only", "generated")[0], 1)
        self.assertEqual(self.report.read_text(encoding="utf-8"), before)

    def test_only_after_another_commit(self):
        self.report.write_text("| commit | abd |\n| generate | passed | 9 s | |", encoding="utf-8")
        self.assertEqual([row.split(" | ")[0] for row in self.rows("--only", "units")[1]], ["| host program, units"])


if __name__ == "__main__":
    unittest.main()
