"""Runs the host program for tests. WARPFUSE_HOST and WARPFUSE_PLUGIN name the program and the plugin."""

import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

SKIPPED = 77  # ctest's SKIP_RETURN_CODE for these tests

HOST = os.environ["WARPFUSE_HOST"]
PLUGIN = os.environ["WARPFUSE_PLUGIN"]

OK, CHECK_FAILED, USAGE, MODEL, PLUGIN_ERROR, DEVICE, OUTPUT = range(7)
INTERRUPTED = 130


def run(*arguments, stdin=b"", preload=None, host=HOST):
    environment = dict(os.environ)
    if preload:
        environment["LD_PRELOAD"] = ":".join(filter(None, [environment.get("LD_PRELOAD"), str(preload)]))
    command = [str(host), *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, env=environment, timeout=300)


def run_with_plugin(command, *arguments, **options):
    return run(command, *arguments, "--plugin", PLUGIN, **options)


def gpu_names():
    info = run_with_plugin("info", "--json")
    info.check_returncode()
    return [gpu["name"] for gpu in json.loads(info.stdout)["gpus"]]


class HostTestCase(unittest.TestCase):
    def assert_ok(self, result):
        self.assertEqual(result.returncode, OK, result.stderr.decode())
        return result

    def assert_fails(self, result, code, *parts):
        """One line on stderr that holds `parts`, the exit code, nothing else."""
        stderr = result.stderr.decode()
        self.assertEqual(result.returncode, code, stderr)
        self.assertRegex(stderr, r"\Awarpfuse: error: [^\n]+\n\Z")
        for part in parts:
            self.assertIn(str(part), stderr)

    def softmax_calls(self, result):
        """(N, M) of the one line "plugin: N of M softmax calls"."""
        found = re.findall(r"^plugin: (\d+) of (\d+) softmax calls$", result.stderr.decode(), re.MULTILINE)
        self.assertEqual(len(found), 1, result.stderr.decode())
        return tuple(map(int, found[0]))


def bundles_or_skip():
    """The folder of the exported bundles; ends the test as skipped where they were not built."""
    folder = pathlib.Path(os.environ.get("WARPFUSE_BUNDLES", "")) / "wikitext-small"
    if not (folder / "fused-float32" / "bundle.json").exists():
        print(f"skipped: no bundles in {folder} (build the target 'bundles')")
        sys.exit(SKIPPED)
    return folder
