"""The plots: what each draws, from a benchmark file."""

from collections.abc import Callable

from .ladder_plot import ladder_plot
from .model import Bench
from .roofline_plot import roofline_plot
from .share_plot import share_plot
from .targets import Peers

PLOTS: dict[str, Callable[[Bench, Peers], str]] = {
    "share.svg": share_plot,
    "ladder.svg": ladder_plot,
    "roofline.svg": roofline_plot,
}
