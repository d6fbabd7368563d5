"""What the tests of scripts/report.py share: a folder of docs with made-up runs in it, and the command."""

import contextlib
import io
import json
import runpy
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import made_up_runs as made_up

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
COMMAND = runpy.run_path(str(SCRIPTS / "report.py"))  # the package has the script's name


class ReportCase(unittest.TestCase):
    PLOTS = False  # which take most of the time

    def setUp(self):
        if not self.PLOTS:
            no_plots = unittest.mock.patch.dict(COMMAND["main"].__globals__, plotting=unittest.mock.Mock())
            no_plots.start()
            self.addCleanup(no_plots.stop)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.docs = Path(folder.name)
        self.folder = self.docs / "benchmarks"
        self.folder.mkdir()
        self.write(made_up.table(), "nvidia-h200.json")
        self.write(made_up.peers(), "peers.json")

    def write(self, raw, name):
        path = self.folder / name
        path.write_text(raw if isinstance(raw, str) else json.dumps(raw), encoding="utf-8")
        return path

    def report(self, *words, code=0):
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            found = COMMAND["main"]([str(word) for word in words])
        self.assertEqual(found, code, errors.getvalue())
        return out.getvalue() if code == 0 else errors.getvalue()

    def page(self, *words, name="nvidia-h200.md"):
        self.report("--docs", self.docs, *words)
        return (self.folder / name).read_text(encoding="utf-8")
