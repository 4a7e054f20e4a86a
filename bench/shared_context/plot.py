# SPDX-License-Identifier: Apache-2.0
"""Dot plots as SVG: a row for each cell, a panel for each measure, readable on light and dark.

A dot is the mean of a cell's runs, the bar through it goes from the lowest to the highest. Colours
follow the reader's scheme (prefers-color-scheme), also where the file is shown as an image.
"""

import dataclasses
import html
import math
import statistics

WIDTH, LEFT, GAP = 1080, 170, 36
ROW, TOP, BOTTOM = 22, 64, 30
STYLE = """
  svg { font: 12px system-ui, sans-serif; }
  .back { fill: #ffffff; } .text { fill: #24292f; } .dim { fill: #57606a; }
  .line { stroke: #d0d7de; } .stripe { fill: #f6f8fa; }
  .a { fill: #0969da; stroke: #0969da; } .b { fill: #bc4c00; stroke: #bc4c00; }
  @media (prefers-color-scheme: dark) {
    .back { fill: #0d1117; } .text { fill: #e6edf3; } .dim { fill: #9198a1; }
    .line { stroke: #30363d; } .stripe { fill: #161b22; }
    .a { fill: #58a6ff; stroke: #58a6ff; } .b { fill: #f0883e; stroke: #f0883e; }
  }
"""


@dataclasses.dataclass
class Series:
    label: str  # empty: no legend
    shade: str  # class of STYLE
    runs: list[list[float]]  # by row; empty where nothing was measured


@dataclasses.dataclass
class Panel:
    title: str
    scale: str  # "log" or "linear"
    series: list[Series]


class Axis:
    """Values to 0 … 1, and the ticks."""

    def __init__(self, panel: Panel):
        found = [value for one in panel.series for runs in one.runs for value in runs]
        self.log = panel.scale == "log"
        top = max(found, default=1.0)
        if self.log:
            low = min((value for value in found if value > 0), default=1.0)
            decades = range(math.floor(math.log10(low)), math.ceil(math.log10(max(top, low))) + 1)
            marks = [m * 10.0 ** e for e in decades for m in (1, 2, 5)]
            first = max(i for i, mark in enumerate(marks) if mark <= low)
            last = min(i for i, mark in enumerate(marks) if mark >= top and i > first)
            self.ticks = marks[first:last + 1]
            self.low, self.high = math.log10(marks[first]), math.log10(marks[last])
        else:
            step = self._step(top)
            self.low, self.high = 0.0, step * max(math.ceil(top / step), 1)
            self.ticks = [step * i for i in range(round(self.high / step) + 1)]

    @staticmethod
    def _step(top: float) -> float:
        rough = (top if top > 0 else 1.0) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        return next(power * m for m in (1, 2, 5, 10) if power * m >= rough)

    def at(self, value: float) -> float:
        if self.log:
            value = max(math.log10(value), self.low) if value > 0 else self.low
        return (value - self.low) / (self.high - self.low)


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"


def draw_panel(panel: Panel, left: float, width: float, rows: int) -> list[str]:
    axis = Axis(panel)
    bottom = TOP + ROW * rows
    out = [f'<text class="text" x="{left}" y="22" font-weight="600">{html.escape(panel.title)}'
           "</text>"]
    legend = left
    for one in panel.series:
        if one.label:
            out.append(f'<circle class="{one.shade}" cx="{legend + 5}" cy="40" r="4"/>'
                       f'<text class="dim" x="{legend + 14}" y="44">{html.escape(one.label)}'
                       "</text>")
            legend += 34 + 6.4 * len(one.label)
    for tick in axis.ticks:
        x = left + width * axis.at(tick)
        out.append(f'<line class="line" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}"/>'
                   f'<text class="dim" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">'
                   f"{number(tick)}</text>")
    for one in panel.series:
        for row, runs in enumerate(one.runs):
            if not runs:
                continue
            y = TOP + ROW * (row + 0.5)
            low, mean, high = (left + width * axis.at(value)
                               for value in (min(runs), statistics.mean(runs), max(runs)))
            out.append(f'<line class="{one.shade}" x1="{low:.1f}" y1="{y}" x2="{high:.1f}" '
                       f'y2="{y}" stroke-width="2"/>'
                       f'<circle class="{one.shade}" cx="{mean:.1f}" cy="{y}" r="4"/>')
    return out


def draw(rows: list[str], panels: list[Panel]) -> str:
    panel_width = (WIDTH - LEFT) / len(panels) - GAP
    height = TOP + ROW * len(rows) + BOTTOM
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
           f'width="{WIDTH}" height="{height}" role="img">', f"<style>{STYLE}</style>",
           f'<rect class="back" width="{WIDTH}" height="{height}"/>']
    for row, name in enumerate(rows):
        y = TOP + ROW * row
        if row % 2 == 0:
            out.append(f'<rect class="stripe" x="0" y="{y}" width="{WIDTH}" height="{ROW}"/>')
        out.append(f'<text class="text" x="{LEFT - 14}" y="{y + 15}" text-anchor="end">'
                   f"{html.escape(name)}</text>")
    for i, panel in enumerate(panels):
        out += draw_panel(panel, LEFT + i * (panel_width + GAP), panel_width, len(rows))
    return "\n".join(out) + "\n</svg>\n"
