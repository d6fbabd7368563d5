"""A headless Chromium with one page, driven over its debugging pipe."""

import base64
import json
import os
import shutil
import subprocess

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    def __init__(self, profile):
        read_by_it, self.requests = os.pipe()
        self.replies, written_by_it = os.pipe()
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
                   f"--user-data-dir={profile}", "about:blank"]  # fmt: skip
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{read_by_it} 4>&{written_by_it}', "bash", *command],
            pass_fds=(read_by_it, written_by_it), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(read_by_it)
        os.close(written_by_it)
        self.unread, self.sent, self.events, self.session = b"", 0, [], {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}

    def call(self, method, **parameters):
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": parameters} | self.session
        os.write(self.requests, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.unread:
                part = os.read(self.replies, 1 << 16)
                assert part, "Chromium has ended"
                self.unread += part
            line, _, self.unread = self.unread.partition(b"\0")
            reply = json.loads(line)
            if reply.get("id") == self.sent:
                assert "error" not in reply, reply
                return reply["result"]
            self.events.append(reply)

    def evaluate(self, expression):
        """The value of a JavaScript expression, or of the promise that it is."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def click(self, selector):
        """With the mouse, where the element is."""
        x, y = self.evaluate(
            f"(() => {{ const at = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return [at.x + at.width / 2, at.y + at.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self):
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])

    def close(self):
        os.close(self.requests)  # at which it ends
        os.close(self.replies)
        self.process.wait(30)
