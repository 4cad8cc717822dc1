"""Run a page and store its outputs. The panels of a figure are lettered, and the
picture says where they are: on a phone they stand one below the other
(`nbs/live/panels.js`).

    python tools/panels.py PAGE.ipynb
"""

import json
import sys
from base64 import b64encode
from io import BytesIO
from math import ceil, floor
from string import ascii_lowercase

from execnb.shell import CaptureShell
from matplotlib import rcParams
from matplotlib.figure import Figure
from PIL import Image
from PIL.PngImagePlugin import PngInfo

CHUNK = "panels"  # the text in a PNG file that holds the places
RIM = 4  # pixels around a panel


# Axes


def parents(ax):
    "The panels to which a colour bar belongs; none if the axes are no colour bar."
    return getattr(ax, "_colorbar_info", {}).get("parents", [])


def extents(ax):
    return ax.get_window_extent().extents


def panels_of(fig):
    "The axes with data of their own, row by row from the left, after a layout."
    places = {}
    for ax in fig.axes:
        if ax.get_visible() and not parents(ax):
            places.setdefault(tuple(extents(ax)), ax)  # without the second of twins
    rows = []
    for ax in sorted(places.values(), key=lambda ax: -extents(ax)[3]):
        _, low, _, high = extents(ax)
        if rows and extents(rows[-1][0])[1] < (low + high) / 2:
            rows[-1].append(ax)
        else:
            rows.append([ax])
    return [ax for row in rows for ax in sorted(row, key=lambda ax: extents(ax)[0])]


def letter(panels):
    "Write (a), (b), … in front of the titles of several panels, if one has ticks."
    if not any(len(ax.get_xticks()) or len(ax.get_yticks()) for ax in panels):
        return
    loc = "center" if any(ax.get_title() for ax in panels) else "left"
    for ax, sign in zip(panels, ascii_lowercase):
        title = ax.get_title(loc=loc)
        if len(panels) > 1 and not title.startswith(f"({sign})"):
            ax.set_title(f"({sign}) {title}".rstrip(), loc=loc)


def leader(ax, axis, panels):
    "The panel that has the tick labels of `ax`, if they are written only there."
    shared = ax.get_shared_x_axes() if axis == "x" else ax.get_shared_y_axes()
    same = slice(0, 4, 2) if axis == "x" else slice(1, 4, 2)

    def written(a):
        labels = a.get_xticklabels() if axis == "x" else a.get_yticklabels()
        return any(label.get_text() for label in labels)

    def in_line(a):
        return abs(extents(a)[same] - extents(ax)[same]).max() < 1

    if written(ax):
        return None
    found = (a for a in panels if shared.joined(a, ax) and in_line(a) and written(a))
    return next(found, None)


# Boxes in pixels of the picture: left, top, right, bottom


def around(*boxes):
    lefts, tops, rights, bottoms = zip(*boxes)
    return [min(lefts), min(tops), max(rights), max(bottoms)]


class Picture:
    "A figure as PNG; its boxes count from the corner of the picture."

    def __init__(self, fig):
        fig.draw_without_rendering()
        self.panels = panels_of(fig)
        letter(self.panels)
        out = BytesIO()
        fig.savefig(
            out,
            format="png",
            dpi=fig.dpi,
            bbox_inches="tight",
            facecolor=fig.get_facecolor(),
            edgecolor=fig.get_edgecolor(),
        )
        fig.draw_without_rendering()
        self.fig = fig
        self.image = Image.open(out)
        corner = fig.get_tightbbox().padded(rcParams["savefig.pad_inches"])
        self.left, self.top = fig.dpi * corner.x0, fig.dpi * corner.y1

    def box(self, bbox, rim=RIM):
        "A box of matplotlib in pixels, with a rim, within the picture."
        left, right = bbox.x0 - self.left, bbox.x1 - self.left
        top, bottom = self.top - bbox.y1, self.top - bbox.y0
        width, height = self.image.size
        return [
            max(floor(left) - rim, 0),
            max(floor(top) - rim, 0),
            min(ceil(right) + rim, width),
            min(ceil(bottom) + rim, height),
        ]

    def frame(self, ax):
        return self.box(ax.get_window_extent(), 0)

    def piece(self, ax):
        "Boxes of a panel, each with the corner where it is drawn."
        at = tuple(extents(ax))
        bars = [bar for bar in self.fig.axes if ax in parents(bar)]
        own = [a for a in self.fig.axes if tuple(extents(a)) == at]
        own += [bar for bar in bars if len(parents(bar)) == 1]
        body = around(*(self.box(a.get_tightbbox()) for a in own))
        parts = [(body, body[:2])]
        if other := leader(ax, "y", self.panels):
            labels = self.box(other.yaxis.get_tightbbox())
            labels[2] = self.frame(other)[0]
            parts.append((labels, [body[0] - labels[2] + labels[0], labels[1]]))
        if other := leader(ax, "x", self.panels):
            labels = self.box(other.xaxis.get_tightbbox())
            labels[1] = self.frame(other)[3]
            shift = self.frame(ax)[0] - self.frame(other)[0]
            parts.append((labels, [labels[0] + shift, body[3]]))
        for bar in bars:
            if len(parents(bar)) > 1:
                box = self.box(bar.get_tightbbox())
                parts.append((box, [body[2], box[1]]))
        return from_corner(parts)

    def others(self):
        "Legends and texts that belong to no panel."
        figures = [self.fig, *self.fig.subfigs]
        for artist in (x for f in figures for x in (*f.legends, *f.texts)):
            if artist.get_visible() and getattr(artist, "get_text", lambda: "legend")():
                box = self.box(artist.get_window_extent())
                yield from_corner([(box, box[:2])])

    def places(self):
        "Frames of the panels, and pieces: none for a single panel and for a diagram."
        frames = [self.frame(ax) for ax in self.panels]
        if len(frames) < 2 or not any(ax.axison for ax in self.panels):
            return dict(frames=frames, pieces=[])
        first = min(top for _, top, _, _ in frames)
        others = [*self.others()]
        above = [p for p in others if p["parts"][0][1] < first]
        below = [p for p in others if p not in above]
        pieces = [*above, *map(self.piece, self.panels), *below]
        return dict(frames=frames, pieces=pieces)

    def png(self):
        "The picture, with the places of its panels."
        kept = PngInfo()
        kept.add_text(CHUNK, json.dumps(self.places(), separators=(",", ":")))
        out = BytesIO()
        self.image.save(out, "png", pnginfo=kept)
        return out.getvalue()


def from_corner(parts):
    "A piece: its size; x, y, width, height of each part; x, y where it is drawn."
    drawn = [
        [x, y, x + right - left, y + bottom - top]
        for (left, top, right, bottom), (x, y) in parts
    ]
    x0, y0, x1, y1 = around(*drawn)
    return dict(
        size=[x1 - x0, y1 - y0],
        parts=[
            [left, top, right - left, bottom - top, x - x0, y - y0]
            for (left, top, right, bottom), (x, y) in parts
        ],
    )


def stored(fig):
    "What a notebook stores of a figure: a PNG of twice its resolution, and its size."
    if not fig.axes and not fig.lines:
        return None
    dpi = fig.dpi
    fig.dpi = 2 * dpi
    try:
        picture = Picture(fig)
        width, height = picture.image.size
        png = b64encode(picture.png()).decode()
    finally:
        fig.dpi = dpi
    return png, dict(width=width // 2, height=height // 2)


def places_in(png):
    "What a stored picture says of its panels; None if it says nothing."
    text = Image.open(BytesIO(png)).info.get(CHUNK)
    return text and json.loads(text)


def execute(path):
    shell = CaptureShell()
    shell.run("import matplotlib.pyplot")  # chooses how figures are shown
    shell.display_formatter.formatters["image/png"].for_type(Figure, stored)
    shell.execute(path, path, exc_stop=True)


if __name__ == "__main__":
    execute(sys.argv[1])
