"""OUT.svg: for each op and direction, every engine's time as a multiple of the roofline's, on a logarithmic scale."""
from math import ceil, log10
from xml.sax.saxutils import escape

from report import Measured
from roof import DIRECTIONS

# By engine: colour (from Okabe and Ito, told apart by colour-blind readers too) and shape.
STYLES = {"xhat": ("#d55e00", "disc"), "jax": ("#0072b2", "square"), "torch-compile": ("#009e73", "up"),
          "torch-native": ("#000000", "cross"), "halide": ("#cc79a7", "diamond"), "eigen": ("#e69f00", "down")}
OTHERS = [("#56b4e9", "square"), ("#777777", "up"), ("#332288", "diamond"), ("#882255", "down")]

ROW, PANEL, GAP, LEFT, TOP, BOTTOM = 20, 330, 24, 190, 84, 44
R = 5  # half the size of a mark
LETTER = 6.7  # pixels that a letter of the legend takes at most
FEW_DECADES = 1


def mark(shape, x, y, colour):
    points = {"up": [(0, -R), (R, R), (-R, R)], "down": [(0, R), (R, -R), (-R, -R)],
              "diamond": [(0, -R - 1), (R + 1, 0), (0, R + 1), (-R - 1, 0)],
              "square": [(-R + 1, -R + 1), (R - 1, -R + 1), (R - 1, R - 1), (-R + 1, R - 1)]}
    style = f'fill="{colour}" fill-opacity="0.8"'
    if shape == "disc":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{R}" {style}/>'
    if shape == "cross":
        d = R - 1
        return (f'<path d="M{x - d:.1f} {y - d:.1f}L{x + d:.1f} {y + d:.1f}M{x - d:.1f} {y + d:.1f}L{x + d:.1f} {y - d:.1f}" '
                f'stroke="{colour}" stroke-width="2.2" fill="none"/>')
    at = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in points[shape])
    return f'<polygon points="{at}" {style}/>'


def text(x, y, what, anchor="start", size=12, extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" {extra}>{escape(what)}</text>'


def svg(result):
    m = Measured(result)
    others = iter(OTHERS * len(m.engines))
    style = {e: STYLES.get(e) or next(others) for e in m.engines}
    slower = {(n, e, d): 1 / share for n in m.ops for e in m.engines for d in DIRECTIONS if (share := m.of_roof(n, e, d))}
    decades = max([FEW_DECADES, *(ceil(log10(v)) for v in slower.values())])
    left = -0.15  # a little room under 1, in decades: noise can put a mark there
    place = lambda panel, v: (LEFT + panel * (PANEL + GAP)
                              + PANEL * (max(log10(v), left) - left) / (decades - left))
    bottom = TOP + ROW * len(m.ops)
    width, height = LEFT + 3 * PANEL + 2 * GAP + 20, bottom + BOTTOM

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
           'font-family="DejaVu Sans, Helvetica, Arial, sans-serif">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           text(12, 24, "Time over the roofline's time (1 = roofline; left is faster)", size=15, extra='font-weight="bold"')]
    x = 18
    for e in m.engines:
        out += [mark(style[e][1], x, 46, style[e][0]), text(x + 10, 50, e)]
        x += 34 + LETTER * len(e)
    for i, n in enumerate(m.ops):
        y = TOP + ROW * i
        if i % 2 == 0:
            out.append(f'<rect x="8" y="{y}" width="{width - 16}" height="{ROW}" fill="#f3f3f3"/>')
        out.append(text(LEFT - 12, y + ROW / 2 + 4, n, "end"))
    for panel, d in enumerate(DIRECTIONS):
        out.append(text(place(panel, 10 ** ((decades + left) / 2)), TOP - 10, d, "middle", 13, 'font-weight="bold"'))
        for decade in range(decades + 1):
            for step in (1, 2, 5):
                v = step * 10 ** decade
                if v > 10 ** decades:
                    continue
                at = place(panel, v)
                colour = "#444" if v == 1 else "#bbb" if step == 1 else "#e2e2e2"
                out.append(f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{bottom}" stroke="{colour}"/>')
                if step == 1 or decades <= 2:
                    out.append(text(at, bottom + 16, f"{v:g}", "middle", 11))
        for i, n in enumerate(m.ops):
            for e in reversed(m.engines):  # the first engine is drawn last, over the others
                if v := slower.get((n, e, d)):
                    out.append(mark(style[e][1], place(panel, v), TOP + ROW * (i + 0.5), style[e][0]))
    out.append(text(LEFT, bottom + 36, f"{result['machine']['cpu']}, {result['threads']} threads, {result['settings']['date']}",
                    size=11, extra='fill="#555"'))
    return "\n".join([*out, "</svg>"]) + "\n"
