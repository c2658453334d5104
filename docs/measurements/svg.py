# SPDX-License-Identifier: GPL-2.0
"""svg.py: what the scripts that draw measurements share."""


def text(x, y, words, anchor="start", size=12):
    """A text; `anchor` says which part of it is at `x`."""
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}">{words}</text>'


def write(path, width, height, drawn):
    """Writes a picture of these elements on white."""
    body = "\n".join(drawn)
    size = f'width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    with open(path, "w", encoding="utf-8") as svg:
        svg.write(f'{head}\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')
