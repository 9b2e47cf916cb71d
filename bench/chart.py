"""Draws the bar charts as one SVG that reads well on light and dark pages; imports nothing."""

from html import escape

Panel = tuple[str, list[tuple[str, float]]]
WIDTH, LABEL, VALUE, ROW, HEAD, GAP, COLUMNS = 440, 215, 60, 19, 28, 22, 2
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #57606a; }
  .title { font-weight: 600; fill: #24292f; }
  .bar { fill: #b6bec8; } .own { fill: #2f7ed8; }
  @media (prefers-color-scheme: dark) {
    text { fill: #9aa4af; } .title { fill: #e6edf3; } .bar { fill: #566070; } .own { fill: #4c98ee; }
  }
"""


def draw(panels: list[Panel]) -> str:
    """Draw panels in two columns, each scaled to its own longest bar; the numbers are ratios."""
    heights = [0] * COLUMNS
    shapes = []
    for title, bars in panels:
        column = heights.index(min(heights))
        shapes += draw_panel(title, bars, column * (WIDTH + GAP) + 10, heights[column] + 10)
        heights[column] += HEAD + ROW * len(bars) + GAP
    width, height = COLUMNS * (WIDTH + GAP), max(heights) + 10
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    name = "<title>How fast each system is, hapi = 1; longer is better</title>"
    return "\n".join([head, name, f"<style>{STYLE}</style>", *shapes, "</svg>", ""])


def draw_panel(title: str, bars: list[tuple[str, float]], left: int, top: int) -> list[str]:
    shapes = [f'<text class="title" x="{left}" y="{top + 13}">{escape(title)}</text>']
    longest = max((value for _, value in bars), default=1)
    for row, (label, value) in enumerate(bars):
        y = top + HEAD + row * ROW
        x = left + LABEL
        length = max(1, (WIDTH - LABEL - VALUE) * value / longest)
        kind = "own" if label.startswith("Storekeeper") else "bar"
        shapes += [
            f'<text x="{x - 8}" y="{y + 11}" text-anchor="end">{escape(label)}</text>',
            f'<rect class="{kind}" x="{x}" y="{y}" width="{length:.1f}" height="14" rx="2"/>',
            f'<text x="{x + length + 6:.1f}" y="{y + 11}">{value:,.{0 if value >= 100 else 2}f}</text>',
        ]
    return shapes
