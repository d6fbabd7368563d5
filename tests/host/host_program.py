"""Runs the host program for tests. WARPFUSE_HOST and WARPFUSE_PLUGIN name the program and the plugin."""

import atexit
import functools
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TIMEOUT = 300  # seconds of a command
SKIPPED = 77  # ctest's SKIP_RETURN_CODE for these tests
OTHER_DEVICE = "for WARPFUSE_DEVICE=cuda"  # why a case is left out of the entry of the CPU

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOST = os.environ["WARPFUSE_HOST"]
PLUGIN = os.environ["WARPFUSE_PLUGIN"]
BAD_PLUGIN = os.environ.get("WARPFUSE_BAD_PLUGIN")
DEVICE = os.environ.get("WARPFUSE_DEVICE", "cpu")

OK, CHECK_FAILED, USAGE, MODEL, PLUGIN_ERROR, DEVICE_ERROR, OUTPUT = range(7)
INTERRUPTED = 130

# A shell's background job ignores SIGINT, and so would the programs that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

folder = pathlib.Path(tempfile.mkdtemp(prefix="warpfuse-tests-"))  # of the process
atexit.register(shutil.rmtree, folder)


class ForkingHost:
    """Runs commands of the host program in forks of one process, which has loaded libtorch (forking_host.cpp)."""

    def __init__(self, program):
        self.environment = dict(os.environ)
        self.folder = os.getcwd()
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        atexit.register(self.process.communicate)

    def run(self, command, stdin, stdout=None):
        """The result of subprocess.run(), without what is said to the file `stdout`; None where the command would not run
        as it does alone."""
        if os.environ != self.environment or os.getcwd() != self.folder:
            return None
        streams = [folder / f"stream-{number}" for number in range(3)]
        for stream, data in zip(streams, (stdin, b"", b"")):
            stream.write_bytes(data)
        words = [str(len(command)), str(streams[0]), str(stdout or streams[1]), str(streams[2]), *command]
        self.process.stdin.write(b"".join(os.fsencode(word) + b"\0" for word in words))
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], TIMEOUT)[0]:
            self.process.kill()
            raise subprocess.TimeoutExpired(command, TIMEOUT)
        code = int(self.process.stdout.readline())
        return subprocess.CompletedProcess(command, code, *(stream.read_bytes() for stream in streams[1:]))


@functools.cache
def forking_host():
    program = os.environ.get("WARPFUSE_FORKING_HOST")
    return ForkingHost(program) if program and DEVICE == "cpu" else None


def run(*arguments, stdin=b"", stdout=None, preload=None, host=HOST):
    """`stdout` names a file that takes what is said there."""
    command = [str(host), *map(str, arguments)]
    if host == HOST and not preload and forking_host():
        if result := forking_host().run(command, stdin, stdout):
            return result
    environment = dict(os.environ)
    if preload:
        environment["LD_PRELOAD"] = ":".join(filter(None, [environment.get("LD_PRELOAD"), str(preload)]))
    with open(stdout or os.devnull, "wb") as file:
        output = file if stdout else subprocess.PIPE
        return subprocess.run(command, input=stdin, stdout=output, stderr=subprocess.PIPE, env=environment, timeout=TIMEOUT)


def run_with_plugin(command, *arguments, **options):
    return run(command, *arguments, "--plugin", PLUGIN, **options)


def start(command, *arguments, **options):
    """The program with the plugin, running; its streams are pipes."""
    command = [HOST, command, *map(str, arguments), "--plugin", PLUGIN]
    return subprocess.Popen(command, **({"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options))


def wait_until_ctrl_c_is_noted(process, patience=120):
    """Until then SIGINT would end it without a word; the start of libtorch takes its time."""
    status = pathlib.Path(f"/proc/{process.pid}/status")
    deadline = time.monotonic() + patience
    while process.poll() is None:
        caught = int(re.search(r"^SigCgt:\s+(\w+)$", status.read_text(), re.MULTILINE)[1], 16)
        if caught >> (signal.SIGINT - 1) & 1:
            return
        assert time.monotonic() < deadline, "SIGINT has no handler"
        time.sleep(0.02)
    raise AssertionError("the program ended by itself")


def lonely_host(name):
    """A copy of the program where no plugin lies beside it."""
    path = folder / name / "bin" / "warpfuse"
    path.parent.mkdir(parents=True)
    shutil.copy(HOST, path)
    return path


def gpu_names():
    info = run_with_plugin("info", "--json")
    info.check_returncode()
    return [gpu["name"] for gpu in json.loads(info.stdout)["gpus"]]


def results(path):
    return json.loads(path.read_text())


class HostTestCase(unittest.TestCase):
    @classmethod
    def assert_ok(cls, result):
        assert result.returncode == OK, result.stderr.decode()
        return result

    def said(self, result):
        return self.assert_ok(result).stdout.decode()

    def json_of(self, result):
        return json.loads(self.assert_ok(result).stdout)

    def assert_fails(self, result, code, *parts):
        """One line on stderr that holds `parts`, the exit code, nothing else."""
        stderr = result.stderr.decode()
        self.assertEqual(result.returncode, code, stderr)
        self.assertRegex(stderr, r"\Awarpfuse: error: [^\n]+\n\Z")
        for part in parts:
            self.assertIn(str(part), stderr)

    def assert_each_fails(self, call, code, cases):
        """`cases`: arguments of `call` -> what its error says."""
        for arguments, message in cases.items():
            with self.subTest(arguments):
                self.assert_fails(call(*arguments), code, message)

    def assert_head(self, document, form):
        """What is around the rows of a benchmark that ended, on one thread of the CPU."""
        self.assertEqual((document["format"], document["complete"]), (form, True))
        self.assertRegex(document["date"], r"^\d{4}-\d\d-\d\d$")
        self.assertEqual((document["device"]["type"], document["device"]["threads"]), ("cpu", 1))
        self.assertTrue(all(document["versions"][name] for name in ("warpfuse", "commit", "libtorch")))

    def assert_check_fails(self, result):
        self.assertEqual(result.returncode, CHECK_FAILED, result.stderr.decode())
        return result.stdout.decode()

    def interrupt(self, process, patience=120):
        """What a running program says when Ctrl-C ends it: stdout and stderr."""
        wait_until_ctrl_c_is_noted(process, patience)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=patience)
        self.assertEqual(process.returncode, INTERRUPTED, stderr)
        return stdout, stderr.decode()

    def softmax_calls(self, result):
        """(N, M) of the one line "plugin: N of M softmax calls"."""
        found = re.findall(r"^plugin: (\d+) of (\d+) softmax calls$", result.stderr.decode(), re.MULTILINE)
        self.assertEqual(len(found), 1, result.stderr.decode())
        return tuple(map(int, found[0]))


def skip_unless(holds, reason):
    """Ends the program as a skipped test."""
    if not holds:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)


def main(gpus=None):
    """Runs the tests of the program; where fewer GPUs are than it needs, it is skipped."""
    needed = int(DEVICE != "cpu") if gpus is None else gpus
    skip_unless(not needed or len(gpu_names()) >= needed, f"fewer than {needed} GPUs, or the plugin is built without CUDA")
    result = unittest.main(exit=False).result
    # One case that skips itself marks the whole program, as it does one of Catch2, unless it is another device's.
    reasons = [reason for _, reason in result.skipped if reason != OTHER_DEVICE]
    for reason in reasons:
        print(f"skipped: {reason}")
    sys.exit(1 if not (result.wasSuccessful() and result.testsRun) else SKIPPED if reasons else 0)


def bundles_or_skip():
    """The folder of the exported bundles; ends the test as skipped where they were not built."""
    bundles = pathlib.Path(os.environ.get("WARPFUSE_BUNDLES", "")) / "wikitext-small"
    skip_unless((bundles / "fused-float32" / "bundle.json").exists(), f"no bundles in {bundles} (build the target 'bundles')")
    return bundles
