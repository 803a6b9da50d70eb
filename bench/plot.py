"""Plots for docs/images: lines over axes, and bars. docs/diagrams/svg.py draws them, in the colours of the reader's theme."""
import importlib.util
import math
import pathlib

# By its path: a folder with a queue.py must not be where Python looks for its own modules.
SPEC = importlib.util.spec_from_file_location("svg", pathlib.Path(__file__).resolve().parents[1] / "docs/diagrams/svg.py")
SVG = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(SVG)
Drawing = SVG.Drawing

LIGHT = ("#2563eb", "#c2410c", "#15803d", "#7c3aed", "#a16207")
DARK = ("#7aa5ff", "#fb923c", "#4ade80", "#c4a5ff", "#eab308")
STYLE = "\n<style>\n" + "".join(f".s{i}{{stroke:{colour};stroke-width:1.8;stroke-linejoin:round;fill:none}}"
                                for i, colour in enumerate(LIGHT)) + "\n@media (prefers-color-scheme:dark){" + "".join(
                                    f".s{i}{{stroke:{colour}}}" for i, colour in enumerate(DARK)) + "}\n</style>"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 340, 62, 16, 44, 46
BAR, NAMES = 26, 250  # pixels: the height of a bar with its gap, the width of its name


def ticks(low, high):
    """Round numbers between two ends, about five."""
    step = 10 ** math.floor(math.log10((high - low) / 4 or 1))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    first = math.ceil(low / step - 1e-9)
    return [round((first + i) * step, 10) for i in range(int(math.floor(high / step + 1e-9)) - first + 1)]


class Axis:
    def __init__(self, label, low, high, marks=None, log=False):
        self.label, self.low, self.high, self.log = label, low, high, log
        self.marks = marks or ticks(low, high)

    def place(self, value):
        if self.log:
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)


def plot(path, title, x, y, lines):
    """`lines`: name -> list of (x, y); those outside of the axes are cut at their ends."""
    def at(point):
        inside = min(max(point[1], y.low), y.high)
        return (LEFT + x.place(point[0]) * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y.place(inside) * (HEIGHT - TOP - BOTTOM))
    drawing = Drawing(WIDTH, HEIGHT, title, STYLE)
    drawing.text(LEFT, 16, title, "head")
    for mark in y.marks:
        _, down = at((x.low, mark))
        drawing.line(LEFT, down, WIDTH - RIGHT, down, "grid")
        drawing.text(LEFT - 6, down + 4, f"{mark:g}", "small", "end")
    for mark in x.marks:
        drawing.text(at((mark, y.low))[0], HEIGHT - BOTTOM + 16, f"{mark:g}", "small", "middle")
    drawing.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x.label, "small", "middle")
    middle = (TOP + HEIGHT - BOTTOM) / 2
    drawing.add(f'<g transform="translate(14 {middle:.0f}) rotate(-90)">')
    drawing.text(0, 0, y.label, "small", "middle")
    drawing.add("</g>")
    right = LEFT
    for number, (name, points) in enumerate(lines.items()):
        drawing.path([at(point) for point in points], f"s{number % len(LIGHT)}")
        drawing.line(right, 32, right + 18, 32, f"s{number % len(LIGHT)}")
        drawing.text(right + 22, 36, name, "small")
        right += 44 + 7 * len(name)
    drawing.write(path)


def bars(path, title, rows, shown):
    """`rows`: (name, value, whether it stands out); `shown`: a value as text."""
    most = max(value for _, value, _ in rows)
    height = TOP + BAR * len(rows)
    drawing = Drawing(WIDTH, height, title)
    drawing.text(8, 16, title, "head")
    for number, (name, value, stands_out) in enumerate(rows):
        top, width = TOP - 12 + BAR * number, max(value, 0) / most * (WIDTH - NAMES - 90)
        drawing.text(NAMES - 8, top + 14, name, "small", "end")
        drawing.add(f'<rect class="{"main" if stands_out else "box"}" x="{NAMES}" y="{top}" width="{width:.1f}" height="{BAR - 6}" rx="2"/>')
        drawing.text(NAMES + width + 6, top + 14, shown(value), "small")
    drawing.write(path)
