"""The colours of the figures, and the lines of the labs' figures."""

import re
from importlib.resources import files

import pytest
import torch

from lightning_ssl.base import palette
from lightning_ssl.base.palette import COLOURS, line_style, panels, point_style
from lightning_ssl.labs import relu_two_layer
from lightning_ssl.labs.one_layer.figures import _draw_basins, _draw_power_iteration


@pytest.mark.parametrize("style", [line_style, point_style])
def test_colour_repeats_only_with_another_line_or_marker(style):
    styles = [style(k) for k in range(24)]
    assert len(set(styles)) == 24
    assert [colour for colour, _ in styles[:6]] == list(COLOURS)


def styles_of(ax):
    """Return colour and line style of every line with a label."""
    lines = [line for line in ax.get_lines() if not line.get_label().startswith("_")]
    return [(line.get_color(), line.get_linestyle()) for line in lines]


def basins(ax, count):
    _draw_basins(ax, {"basins": torch.rand(count, 2, 5)}, [0.1 * k for k in range(1, count)])


def power_iteration(ax, count):
    _draw_power_iteration(ax, {"power_iteration": torch.rand(count, 4), "skew_norm": torch.rand(count, 2)})


@pytest.mark.parametrize("draw", [basins, power_iteration])
def test_lines_of_a_lab_figure_differ(draw):
    _, (ax,) = panels(1, 1, (4, 3))
    draw(ax, 10)
    assert len(styles_of(ax)) == len(set(styles_of(ax))) == 10


def test_widths_of_a_lab_figure_differ():
    few = {"modes": 2, "samples": 3, "augmentation": (1.0, 1.5), "steps": 2, "seeds": 1}
    axes = relu_two_layer.run(hidden=tuple(range(1, 11)), **few).figure().axes
    assert len(set(styles_of(axes[0]))) == 10
    assert len(set(styles_of(axes[3]))) == 11


def test_no_lab_figure_takes_colours_in_turn_without_line_styles():
    for file in (files("lightning_ssl") / "labs").rglob("*.py"):
        assert not re.search(r"PALETTE\[[^\]]*%", file.read_text(encoding="utf-8")), file.name


def test_every_colour_is_visible_on_white_paper():
    def luminance(colour):
        channels = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for colour in (*COLOURS, palette.BLACK):
        assert 1.05 / (luminance(colour) + 0.05) > 2  # contrast ratio; yellow has 1.3
