"""What the host program does with hostile files and with writes that fail: one line, the documented exit code, no
signal, no endless wait. A new file format joins FILES, a new command that prints joins PRINTING."""

import os
import pathlib
import signal
import subprocess
import unittest

from cli_bundles import baseline, copy_of, cycle, fused, module, write
from host_program import (
    DEVICE_ERROR,
    HOST,
    INTERRUPTED,
    MODEL,
    OK,
    OUTPUT,
    PLUGIN,
    USAGE,
    HostTestCase,
    folder,
    run,
    run_with_plugin,
    start,
)

DEEP = 100_000

text = write("text.txt", "the river rises in the hills")


CONTENTS = {
    "deep": lambda path: path.write_text('{"a":' * DEEP),
    "deep_list": lambda path: path.write_text('{"a": ' + "[" * DEEP + "]" * DEEP + "}"),
    "empty": lambda path: path.write_bytes(b""),
    "noise": lambda path: path.write_bytes(bytes(range(256)) * 4),
    "pipe": os.mkfifo,
    "loop": lambda path: path.symlink_to(path.name),
    "folder": pathlib.Path.mkdir,
    "missing": lambda path: None,
}
ANYTHING = "deep deep_list empty noise pipe loop folder"
TOKENIZE = ("tokenize", "--tokenizer", "{folder}")
GENERATE = ("generate", "-m", "{folder}", "-p", "a", "-n", "2", "--device", "cpu")
PROMPTS = ("generate", "-m", baseline, "-n", "2", "--device", "cpu", "--prompts", "{file}")

# (file, how it comes to be read, code, what it holds); {folder} is a copy of a bundle with that file in it.
FILES = [
    ("bundle.json", GENERATE, MODEL, ANYTHING + " missing"),
    ("model.pt", GENERATE, MODEL, "deep empty noise pipe loop folder missing"),
    ("vocab.json", TOKENIZE, MODEL, ANYTHING + " missing"),
    ("merges.txt", TOKENIZE, MODEL, "deep noise pipe loop folder missing"),
    ("added_tokens.json", TOKENIZE, MODEL, ANYTHING),
    ("special_tokens_map.json", TOKENIZE, MODEL, ANYTHING),
    ("tokenizer.json", TOKENIZE, MODEL, ANYTHING),
    ("prompts.jsonl", PROMPTS, USAGE, "deep deep_list empty noise loop folder missing"),
    ("ids.json", ("bench", "generate", "-m", "{folder}/..", "--prompt-ids", "{file}"), USAGE, "deep empty folder"),
    ("old.json", ("bench", "softmax", "--shapes", "4x4", "--baseline", "{file}"), USAGE, "deep empty folder"),
]

# Each prints something and ends well where it can.
PRINTING = {
    "help": ("--help",),
    "version": ("--version",),
    "help of a command": ("generate", "--help"),
    "info": ("info",),
    "info as JSON": ("info", "--json"),
    "tokenize": ("tokenize", "--tokenizer", baseline),
    "generate": ("generate", "-m", baseline, "-p", "a", "-n", "2", "--device", "cpu"),
    "generate as JSON": ("generate", "-m", baseline, "-p", "a", "-n", "2", "--device", "cpu", "--json"),
    "perplexity": ("perplexity", "-m", baseline, "--text", text, "--device", "cpu"),
    "verify": ("verify", module, module, "--device", "cpu"),
    "bench": ("bench", "softmax", "--shapes", "4x4", "--quick", "--device", "cpu"),
    "serve": ("serve", "-m", cycle, "--port", "0", "--device", "cpu"),
}
WITH_PLUGIN = {"info", "generate", "perplexity", "verify", "bench", "serve"}


def arguments_of(command):
    arguments = list(map(str, command))
    if arguments[0] in WITH_PLUGIN and "--help" not in arguments:
        arguments += ["--plugin", PLUGIN]
    return arguments


def shell(redirection, command, **options):
    """Runs the program with streams redirected by the shell."""
    script = f'exec "$@" {redirection}'
    arguments = ["bash", "-c", script, "bash", str(HOST), *arguments_of(command)]
    return subprocess.run(arguments, input=b"text\n", capture_output=True, timeout=120, **options)


class Files(HostTestCase):
    def test_hostile_files(self):
        for name, command, code, contents in FILES:
            for content in contents.split():
                with self.subTest(file=name, content=content):
                    bundle = copy_of(baseline, f"hostile/{name}-{content}/bundle")
                    file = bundle / name
                    file.unlink(missing_ok=True)
                    CONTENTS[content](file)
                    given = [str(part).format(folder=bundle, file=file) for part in command]
                    self.assert_fails(run(*arguments_of(given), stdin=b"text\n"), code, name)

    def test_memory_that_is_not_there(self):
        """A model that does not fit, and a machine on which nothing fits, are a line each."""
        failures = 0
        for kib in (400_000, 600_000, 900_000, 1_500_000):
            command = ["bash", "-c", f'ulimit -v {kib}; exec "$@"', "bash", str(HOST)]
            command += arguments_of(PRINTING["perplexity"])
            result = subprocess.run(command, capture_output=True, timeout=120)
            with self.subTest(kib=kib):
                self.assertGreaterEqual(result.returncode, 0, result.stderr)  # no signal
                self.assertLess(result.returncode, 128, result.stderr)
                if result.returncode != OK:
                    failures += 1
                    self.assertEqual(len(result.stderr.decode().splitlines()), 1, result.stderr)
        self.assertGreater(failures, 0)

    def test_sizes_that_no_memory_has(self):
        result = run_with_plugin("verify", module / "model.pt", module / "model.pt", "--input", ",".join(["1000000000"] * 3))
        self.assert_fails(result, DEVICE_ERROR, "out of memory: ")
        bundle = copy_of(baseline, "endless", **dict.fromkeys(("layers", "heads", "head_dim"), 2**31))
        result = run_with_plugin("generate", "-m", bundle, "-p", "x", "-n", "2", "--device", "cpu")
        self.assert_fails(result, DEVICE_ERROR, "out of memory: the keys and values of 1 sequences of 3 tokens take 2305843009.214 GB each")

    def test_a_row_that_fits_nowhere_is_skipped(self):
        result = run_with_plugin("bench", "softmax", "--shapes", "100000000x100000,4x4", "--quick", "--device", "cpu")
        self.assert_fails(result, DEVICE_ERROR, "1 of 2 rows do not fit into memory")
        self.assertRegex(result.stdout.decode(), r"(?m)^softmax +forward +100000000x100000 .*skipped: out of memory$")
        self.assertRegex(result.stdout.decode(), r"(?m)^softmax +forward +4x4 .* warpfuse ")


class Writes(HostTestCase):
    def test_stdout_that_takes_nothing(self):
        full = lambda command: run(*arguments_of(command), stdin=b"text\n", stdout="/dev/full")
        closed = lambda command: shell(">&-", command)
        for name, command in PRINTING.items():
            for stdout, run_with in (("full", full), ("closed", closed)):
                with self.subTest(command=name, stdout=stdout):
                    result = run_with(command)
                    self.assertEqual(result.returncode, OUTPUT, result.stderr)
                    errors = result.stderr.decode().splitlines()
                    self.assertRegex(errors[-1], r"^warpfuse: error: stdout: cannot be written: ")
                    self.assertEqual(sum("error" in line for line in errors), 1)

    def test_files_that_take_nothing(self):
        bench = (*PRINTING["bench"], "--json")
        generation = ("bench", "generate", "-m", baseline.parent, "--prompt", "8", "-n", "2", "--device", "cpu", "--json")
        for command in (bench, (*bench[:-1], "--csv"), generation):
            for path in ("/dev/full", folder / "none" / "f", folder):
                with self.subTest(command=command[1], option=command[-1], path=path):
                    self.assert_fails(run_with_plugin(*command, path), OUTPUT, f"{path}: cannot be written: ")
        self.assertTrue(pathlib.Path("/dev/full").is_char_device())
        self.assertEqual(list(folder.parent.glob(f"{folder.name}.*part")), [])

    def test_a_file_that_may_not_become_so_large(self):
        place = folder / "limited"
        place.mkdir()
        command = ["bash", "-c", 'ulimit -f 8; exec "$@"', "bash", str(HOST)]  # KiB
        command += ["rewrite", str(baseline / "model.pt"), str(place / "out.pt"), "--plugin", PLUGIN]
        result = subprocess.run(command, capture_output=True, timeout=120)
        self.assert_fails(result, OUTPUT, f"{place}/out.pt: cannot be written: File too large")
        self.assertEqual(os.listdir(place), [])

    def test_stdin_that_gives_nothing(self):
        for redirection in ("<&-", "< /"):
            result = shell(redirection, PRINTING["tokenize"])
            self.assert_fails(result, USAGE, "stdin: cannot be read: ")

    def test_no_stderr(self):
        for redirection in ("2>&-", "2> /dev/full"):
            for command, code in ((PRINTING["generate"], OK), (("sing",), USAGE)):
                with self.subTest(command=command[0], stderr=redirection):
                    result = shell(redirection, command)
                    self.assertEqual((result.returncode, result.stderr), (code, b""))

    def test_no_stream_is_taken_for_a_file(self):
        """A file that is opened does not get the number of a stream that was closed."""
        path = folder / "whole.json"
        result = shell(">&- 2>&-", (*PRINTING["bench"], "--json", path))
        self.assertEqual(result.returncode, OUTPUT)
        if path.exists():
            self.assertTrue(path.read_text().startswith("{"))

    def test_a_reader_that_goes_away(self):
        reader, writer = os.pipe()
        os.close(reader)  # before the first write: later, all may have been written already
        with start("generate", "-m", cycle, "-p", "x", "-n", "200", "--ignore-eos", stdout=writer) as process:
            os.close(writer)
            self.assertEqual(process.wait(timeout=60), -signal.SIGPIPE)
            self.assertEqual(process.stderr.read(), b"")


class Interrupts(HostTestCase):
    def interrupted(self, ignored):
        command = ("generate", "-m", fused, "--prompts", write("many.txt", "x\n" * 300), "-n", "60", "--ignore-eos", "--json")
        action = signal.SIG_IGN if ignored else signal.SIG_DFL
        with start(*command, preexec_fn=lambda: signal.signal(signal.SIGINT, action)) as process:
            process.stdout.readline()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=120)
            return process.returncode

    def test_an_ignored_signal_stays_ignored(self):
        self.assertEqual(self.interrupted(ignored=False), INTERRUPTED)
        self.assertEqual(self.interrupted(ignored=True), OK)


if __name__ == "__main__":
    unittest.main()
