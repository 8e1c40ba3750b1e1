"""Draws bar charts as SVG for the HTML page of a report, with the standard library only."""

import html

ROW, GAP, LABEL, WIDTH, FIGURE = 22, 26, 250, 420, 190
COLOURS = ("#1f6f8b", "#d9822b", "#7a9e3b", "#8e5ea2", "#c0504d", "#777777")


def _text(x, y, text, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">'
            f"{html.escape(str(text))}</text>")


def bars(title, groups, unit, line=None):
    """Draws groups of bars: [(name, [(label, {"median", "low", "high"}), ...]), ...].

    A bar ends at its median and shows the interval from low to high. `line` is a value that is marked in all groups."""
    shown = [value for _, rows in groups for _, value in rows]
    most = max([value["high"] for value in shown] + ([line] if line else [])) or 1
    labels = list(dict.fromkeys(label for _, rows in groups for label, _ in rows))
    scale = WIDTH / most
    parts, y = [_text(0, 16, title, weight="bold")], 30
    for name, rows in groups:
        y += GAP
        parts.append(_text(0, y - 8, name, weight="bold"))
        for label, value in rows:
            parts += _bar(y, label, value, scale, COLOURS[labels.index(label) % len(COLOURS)], unit)
            y += ROW
    if line:
        x = LABEL + line * scale
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="34" y2="{y}" stroke="#333" '
                     'stroke-dasharray="4 3"/>')
    size = f'width="{LABEL + WIDTH + FIGURE}" height="{y + 10}"'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" '
            f'font-size="12" role="img">{"".join(parts)}</svg>')


def _bar(y, label, value, scale, colour, unit):
    middle = y + ROW / 2 - 2
    low, high = (LABEL + value[key] * scale for key in ("low", "high"))
    width = max(value["median"] * scale, 1)
    figure = f'{value["median"]:.3g} {unit} ({value["low"]:.3g} to {value["high"]:.3g})'
    return [
        _text(LABEL - 6, middle + 4, label, "end"),
        f'<rect x="{LABEL}" y="{y}" width="{width:.1f}" height="{ROW - 5}" fill="{colour}"/>',
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}" stroke="#000"/>',
        _text(max(high, LABEL + width) + 6, middle + 4, figure),
    ]
