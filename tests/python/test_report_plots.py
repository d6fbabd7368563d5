"""The plots of scripts/report.py: what they show, and that it is inside.

python test_report_plots.py [unittest options]
"""

import re
import unittest
import xml.etree.ElementTree as ElementTree

import synthetic_bench as made_up

# First, since it makes the package report importable.
from report_case import ReportCase, plain

from report.model import load_bench
from report.roofline_plot import OPERATIONS, intensity

SVG = "{http://www.w3.org/2000/svg}"


class Plots(ReportCase):
    def drawing(self, name):
        self.succeed("--allow-partial")
        return ElementTree.parse(self.docs / "images" / name).getroot()

    def words(self, name):
        return [text for text in self.drawing(name).itertext() if text.strip()]

    def test_everything_is_inside(self):
        self.put_whole()
        for name in ("share.svg", "ladder.svg", "roofline.svg"):
            root = self.drawing(name)
            width, height = map(float, root.get("viewBox").split()[2:])
            for element in root.iter():
                xs = [float(element.get(k)) for k in ("x", "cx") if element.get(k)]
                ys = [float(element.get(k)) for k in ("y", "cy") if element.get(k)]
                points = re.findall(
                    r"(-?[\d.]+)[ ,](-?[\d.]+)", element.get("d", "") + element.get("points", "")
                )
                xs += [float(x) for x, _ in points]
                ys += [float(y) for _, y in points]
                if element.tag.endswith("rect") and xs:
                    xs.append(xs[0] + float(element.get("width")))
                    ys.append(ys[0] + float(element.get("height")))
                self.assertTrue(all(0 <= x <= width for x in xs), (name, element.attrib))
                self.assertTrue(all(0 <= y <= height for y in ys), (name, element.attrib))

    def test_ladder(self):
        self.put_gpu(
            made_up.bench(made_up.both_ways((1024, 8192), "float32", ladder=True, share=0.92))
        )
        words = self.words("ladder.svg")
        floor = 2 * 1024 * 8192 * 4 / made_up.COPY / 1e3
        for text in (
            "naive",
            "warp",
            "block",
            "cluster",
            "stream",
            "warpfuse",
            "ATen",
            "floor",
            "float32",
            f"{floor / 0.92:.1f} (92 %, block)",
            f"{floor:.1f}",
            f"{floor * 14:.0f} (7 %)",
            "does not take this shape",
        ):
            self.assertIn(text, words)
        self.assertNotIn("bfloat16", words)
        breaks = list(self.drawing("ladder.svg").iter(f"{SVG}polygon"))
        self.assertEqual(len(breaks), 1)  # only the naive bar is cut

    def test_ladder_bars_are_as_long_as_their_times(self):
        self.put_gpu(plain(0.5, aten=0.25))
        bars = {
            rect.get("fill"): float(rect.get("width"))
            for rect in self.drawing("ladder.svg").iter(f"{SVG}rect")
        }
        self.assertAlmostEqual(bars["#0969da"] / bars["#d1570a"], 0.5, places=2)
        self.assertAlmostEqual(bars["#afb8c1"] / bars["#d1570a"], 0.25, places=2)

    def test_a_wrong_kernel_has_no_bar(self):
        bench = plain(ladder=True)
        for variant in bench["rows"][0]["variants"]:
            if variant["name"] == "stream":
                variant |= {"status": "wrong", "reason": "error"}
        self.put_gpu(bench)
        self.assertIn("wrong result", self.words("ladder.svg"))

    def test_share_has_a_point_for_each_forward_row(self):
        swept = made_up.sweep()["rows"]
        backward = made_up.row((1024, 65536), "float32", "backward")
        rows = [row | {"presets": ["sweep"]} for row in (*swept, backward)]
        self.put_gpu(made_up.bench(rows))
        tips = [title.text for title in self.drawing("share.svg").iter(f"{SVG}title")]
        self.assertEqual(len(tips) - 1, 2 * len(swept))  # the drawing's own title; ours and ATen's
        self.assertTrue(any("ATen bfloat16, 1335 x 50257" in tip for tip in tips))

    def test_roofline_model(self):
        path = self.put_gpu(made_up.bench(made_up.both_ways((1024, 8192), "float32")))
        forward, backward = load_bench(path).rows
        self.assertAlmostEqual(intensity(forward), OPERATIONS["forward"] / 8)
        self.assertAlmostEqual(intensity(backward), OPERATIONS["backward"] / 12)

    def test_roofline_of_an_unknown_processor(self):
        self.put_whole()
        self.assertTrue(
            any("exponentials, forward:" in word for word in self.words("roofline.svg"))
        )
        bench = plain()
        bench["device"]["name"] = "NVIDIA <Other> & Co"
        self.put_gpu(bench)
        words = self.words("roofline.svg")
        self.assertFalse(any("exponentials, forward:" in word for word in words))
        self.assertTrue(any("NVIDIA <Other> & Co" in word for word in words))


if __name__ == "__main__":
    unittest.main()
