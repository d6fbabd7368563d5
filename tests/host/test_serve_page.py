"""The page of `warpfuse serve` in headless Chromium: a click continues the prompt, piece by piece.

WARPFUSE_SCREENSHOT names a file for the last picture. Exit code 77: Chromium is not installed.
"""

import json
import os
import pathlib
import tempfile
import time
import unittest

from browser import CHROMIUM, Browser
from cli_bundles import fused
from host_program import skip_unless
from serve_client import ServeTestCase, generated


class Page(ServeTestCase):
    bundle, arguments = fused, ()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        profile = tempfile.TemporaryDirectory(prefix="warpfuse-chromium-", ignore_cleanup_errors=True)
        cls.addClassCleanup(profile.cleanup)
        cls.browser = Browser(profile.name)
        cls.addClassCleanup(cls.browser.close)
        cls.browser.call("Network.enable")
        cls.own = f"http://127.0.0.1:{cls.server.port}/"

    def setUp(self):
        self.browser.call("Page.enable")
        self.browser.call("Page.navigate", url=self.own)
        self.wait("document.readyState === 'complete' && document.getElementById('go')?.onclick != null")

    def wait(self, condition):
        deadline = time.monotonic() + 60
        while not self.browser.evaluate(condition):
            self.assertLess(time.monotonic(), deadline, condition)
            time.sleep(0.05)

    def of(self, name):
        return self.browser.evaluate(f"document.getElementById('{name}').textContent")

    def go(self, **fields):
        """Fills in the fields, clicks, and waits for the end; how often the text grew."""
        for name, value in fields.items():
            self.browser.evaluate(f"document.getElementById('{name}').value = {json.dumps(value)}")
        self.browser.evaluate(
            "window.changes = 0; new MutationObserver((seen) => { window.changes += seen.length; })"
            ".observe(document.getElementById('text'), {childList: true}); 0"
        )
        self.browser.click("#go")
        self.wait("!document.getElementById('go').disabled && document.getElementById('figures').textContent !== ''")
        return self.browser.evaluate("window.changes")

    def test_a_click_continues_the_prompt(self):
        before = self.browser.screenshot()
        changes = self.go(prompt="The river", tokens=48, temperature=0.8, seed=7)
        expected = generated(fused, "The river", "-n", 48, "--temperature", "0.8", "--seed", "7")
        self.assertEqual(self.of("text"), "The river" + expected)
        self.assertGreater(changes, 20)  # it came in pieces
        self.assertRegex(self.of("figures"), r"^[\d.]+ tokens/s; (\d+) of \1 softmax calls by the plugin$")
        after = self.browser.screenshot()
        for picture in (before, after):
            self.assertEqual(picture[:8], b"\x89PNG\r\n\x1a\n")
        self.assertNotEqual(before, after)
        if "WARPFUSE_SCREENSHOT" in os.environ:
            pathlib.Path(os.environ["WARPFUSE_SCREENSHOT"]).write_bytes(after)

    def test_texts_are_no_html(self):
        prompt = "<b>x</b><img src=/health onerror='document.title=1'>"
        self.go(prompt=prompt, tokens=3, temperature=0, seed=0)
        self.assertTrue(self.of("text").startswith(prompt))
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('#text *').length"), 0)

    def test_errors_are_shown(self):
        self.go(prompt="x", tokens=0)
        self.assertRegex(self.of("figures"), "^error: .*max_tokens")

    def test_nothing_comes_from_elsewhere(self):
        self.go(prompt="x", tokens=2)
        urls = [event["params"]["request"]["url"] for event in self.browser.events if event.get("method") == "Network.requestWillBeSent"]
        self.assertIn(self.own, urls)
        self.assertEqual([url for url in urls if not url.startswith(self.own)], [])


if __name__ == "__main__":
    skip_unless(CHROMIUM, "Chromium is not installed")
    unittest.main()
