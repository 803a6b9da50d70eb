"""Small SVG drawings that follow the colours of the reader's theme. Used by the other scripts of this folder and by bench/plot.py."""
import html
import os
import pathlib

STYLE = """<style>
text{font-family:system-ui,sans-serif;font-size:13px;fill:#333}
.head{font-weight:600;font-size:15px}.small{font-size:11.5px;fill:#666}.mono{font-family:ui-monospace,monospace;font-size:12px}
.axis{stroke:#999;stroke-width:1;fill:none}.grid{stroke:#bbb;stroke-width:1;stroke-dasharray:2 4;fill:none}
.left{stroke:#2563eb;stroke-width:1.8;fill:none}.under{fill:#2563eb;fill-opacity:.12;stroke:none}
.allow{stroke:#15803d;stroke-width:1.8}.deny{stroke:#c2410c;stroke-width:1.8}.wait{stroke:#7c3aed;stroke-width:1.8}
.run{fill:#15803d;fill-opacity:.75}.cross{stroke:#c2410c;stroke-width:2}
.box{fill:#f4f6fa;stroke:#7b8794;stroke-width:1.2}.main{fill:#e3ecfd;stroke:#2563eb;stroke-width:1.4}.arrow{stroke:#555;stroke-width:1.3;fill:none}
.tip{fill:#555}
@media (prefers-color-scheme:dark){text{fill:#ddd}.small{fill:#aaa}.axis{stroke:#888}.grid{stroke:#555}
.left{stroke:#7aa5ff}.under{fill:#7aa5ff}.allow{stroke:#4ade80}.deny{stroke:#fb923c}.wait{stroke:#c4a5ff}.run{fill:#4ade80}.cross{stroke:#fb923c}
.box{fill:#23272e;stroke:#7b8794}.main{fill:#1d2d4d;stroke:#7aa5ff}.arrow{stroke:#aaa}.tip{fill:#aaa}}
</style>"""


class Drawing:
    def __init__(self, width, height, title, style=""):
        """`style`: a <style> element with more classes."""
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
                      f"<title>{html.escape(title)}</title>", STYLE + style,
                      '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
                      'orient="auto-start-reverse"><path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>']

    def add(self, part):
        self.parts.append(part)

    def text(self, x, y, text, kind="", anchor="start"):
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{html.escape(text)}</text>')

    def line(self, x1, y1, x2, y2, kind, more=""):
        self.add(f'<path class="{kind}" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" {more}/>')

    def path(self, points, kind, close=False):
        self.add(f'<path class="{kind}" d="M' + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + ("z" if close else "") + '"/>')

    def box(self, x, y, width, height, lines, kind="box"):
        self.add(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>')
        top = y + height / 2 - 8.5 * (len(lines) - 1) + 4.5
        for i, line in enumerate(lines):
            self.text(x + width / 2, top + 17 * i, line, "" if i == 0 else "small", "middle")

    def arrow(self, *points, both=False):
        shape = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        start = ' marker-start="url(#tip)"' if both else ""
        self.add(f'<path class="arrow" d="M{shape}" marker-end="url(#tip)"{start}/>')

    def write(self, path):
        """WEIR_IMAGES: another folder, for the test that compares."""
        (pathlib.Path(os.environ.get("WEIR_IMAGES") or path.parent) / path.name).write_text("\n".join(self.parts) + "\n</svg>\n")
