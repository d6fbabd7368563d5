"""A second copy of the library in a process, under another path: one line that names both, and the
first one's operators go on.

    python test_second_copy.py LIBRARY PROBE
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

LIBRARY, PROBE = (os.path.realpath(argument) for argument in sys.argv[1:3])

CHECK = """
import _ctypes, ctypes, sys, torch
def check():
    softmax = torch.ops.warpfuse.softmax(torch.zeros(2, 4, requires_grad=True), 1)
    softmax.sum().backward()
    assert softmax.eq(0.25).all()
    assert torch.ops.warpfuse.call_count("softmax.cpu") == 1
"""
LOAD_BOTH = CHECK + """
load = torch.ops.load_library if sys.argv[1] == "load_library" else ctypes.CDLL
load(sys.argv[2])
load(sys.argv[3])
check()
"""
CLOSE_FIRST = CHECK + """
_ctypes.dlclose(ctypes.CDLL(sys.argv[1])._handle)
print(sys.argv[1] in open("/proc/self/maps").read())
ctypes.CDLL(sys.argv[2])
check()
"""


class SecondCopy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.copies = []
        for name in ("one", "two"):
            path = pathlib.Path(cls.folder.name) / name / "libwarpfuse.so"
            path.parent.mkdir()
            shutil.copy(LIBRARY, path)
            cls.copies.append(str(path))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_well(self, *command, preload=None):
        environment = {**os.environ, **({"LD_PRELOAD": preload} if preload else {})}
        result = subprocess.run(command, env=environment, capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def line(self, second, first):
        return (
            f"warpfuse: {second} cannot be loaded: {first} is in this process already, "
            "and its operators stay in use"
        )

    def assert_said_once(self, result, second, first):
        self.assertEqual(result.stderr.splitlines(), [self.line(second, first)])

    def test_in_python(self):
        for way in ("load_library", "CDLL"):
            with self.subTest(way):
                result = self.run_well(sys.executable, "-c", LOAD_BOTH, way, LIBRARY, self.copies[0])
                self.assert_said_once(result, self.copies[0], LIBRARY)

    def test_opened_twice_by_a_program(self):
        result = self.run_well(PROBE, LIBRARY, self.copies[0])
        self.assert_said_once(result, self.copies[0], LIBRARY)
        self.assertEqual(result.stdout.splitlines()[1:], [self.line(self.copies[0], LIBRARY)])

    def test_opened_beside_a_preloaded_one(self):
        result = self.run_well(PROBE, "-", self.copies[0], preload=LIBRARY)
        self.assert_said_once(result, self.copies[0], LIBRARY)

    def test_preloaded_twice(self):
        first, second = self.copies
        result = self.run_well(sys.executable, "-c", CHECK + "check()", preload=f"{first} {second}")
        self.assertEqual(len(result.stderr.splitlines()), 1)
        self.assertIn(result.stderr.strip(), (self.line(first, second), self.line(second, first)))

    def test_the_same_file_is_no_second_copy(self):
        link = pathlib.Path(self.folder.name) / "link.so"
        link.symlink_to(LIBRARY)
        result = self.run_well(sys.executable, "-c", LOAD_BOTH, "load_library", LIBRARY, str(link))
        self.assertEqual(result.stderr, "")

    def test_a_library_that_is_gone_gives_way(self):
        # A process may keep a library that was closed, whose operators then stay.
        result = self.run_well(sys.executable, "-c", CLOSE_FIRST, LIBRARY, self.copies[0])
        kept = result.stdout == "True\n"
        expected = [self.line(self.copies[0], LIBRARY)] if kept else []
        self.assertEqual(result.stderr.splitlines(), expected)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
