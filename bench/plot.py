"""Plots as SVG, for docs/images: lines over axes, readable on light and dark pages."""
import html
import math

COLOURS = ("#2a78c2", "#d4591c", "#2c9a4b", "#8a5bc7", "#b8891a")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 340, 62, 16, 40, 46


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


def text(x, y, words, anchor="middle", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{html.escape(str(words))}</text>'


def plot(path, title, x, y, lines):
    """`lines`: name -> list of (x, y); those outside of the axes are cut at their ends."""
    def at(point):
        inside = min(max(point[1], y.low), y.high)
        return (LEFT + x.place(point[0]) * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y.place(inside) * (HEIGHT - TOP - BOTTOM))
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" '
             f'fill="#777" role="img"><title>{html.escape(title)}</title>',
             text(LEFT, 16, title, "start", 'font-size="14" font-weight="bold"')]
    for mark in y.marks:
        _, down = at((x.low, mark))
        parts.append(f'<path d="M{LEFT} {down:.1f}H{WIDTH - RIGHT}" stroke="#777" stroke-opacity=".25"/>')
        parts.append(text(LEFT - 6, down + 4, f"{mark:g}", "end"))
    for mark in x.marks:
        parts.append(text(at((mark, y.low))[0], HEIGHT - BOTTOM + 16, f"{mark:g}"))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x.label))
    parts.append(text(0, 0, y.label, "middle", f'transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)"'))
    right = LEFT
    for colour, (name, points) in zip(COLOURS, lines.items()):
        way = "L".join(f"{across:.1f} {down:.1f}" for across, down in map(at, points))
        parts.append(f'<path d="M{way}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-linejoin="round"/>')
        parts.append(f'<path d="M{right} 28h18" stroke="{colour}" stroke-width="3"/>')
        parts.append(text(right + 22, 32, name, "start"))
        right += 40 + 7 * len(name)
    path.write_text("\n".join(parts) + "\n</svg>\n")
