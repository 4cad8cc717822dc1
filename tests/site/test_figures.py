"""Stored figures are small, and say where their panels are (tools/panels.py): a phone
shows them one below the other (nbs/live/panels.js).
"""

import base64
import io
import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
from every import on_every_page
from panels import panels_of, places_in, stored
from PIL import Image
from run_pages import NBS, cells, figures, read


def png_of(data):
    return base64.b64decode("".join(data["image/png"]))


@on_every_page
def test_stored_figures_are_small(page):
    for label, data in figures(read(NBS / f"{page}.ipynb")):
        png = png_of(data)
        assert Image.open(io.BytesIO(png)).mode == "P", (
            f"{label}: run `python tools/run_pages.py`"
        )
        assert len(png) < 80e3, (
            f"{label} has {len(png) / 1e3:.0f} kB: fewer points, or fewer panels"
        )


# Panels


def drawn(png):
    "Where a picture is not blank, (height, width)."
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)
    return np.abs(pixels - pixels[0, 0]).max(2) > 40


def complain(png):
    "What is wrong with the places of the panels of a picture."
    places, ink = places_in(png), drawn(png)
    if places is None:
        return ["says nothing of its panels: run `python tools/run_pages.py`"]
    found, lost = [], ink.copy()
    for piece in places["pieces"]:
        width, height = piece["size"]
        for x, y, w, h, to_x, to_y in piece["parts"]:
            if (
                not (0 <= x and 0 <= y and x + w <= ink.shape[1])
                or y + h > ink.shape[0]
            ):
                found.append(f"a part at {x, y} is not in the picture")
            if min(to_x, to_y) < 0 or to_x + w > width or to_y + h > height:
                found.append(f"a part at {x, y} is not in its piece")
            lost[y : y + h, x : x + w] = False
    if places["pieces"] and lost.any():
        found.append(f"{lost.sum()} pixels are in no piece")
    for left, top, right, bottom in places["frames"] if places["pieces"] else []:
        homes = 0
        for piece in places["pieces"]:
            x, y, w, h = piece["parts"][0][:4]
            inside = x <= left and y <= top and x + w >= right and y + h >= bottom
            touched = (
                min(x + w, right) - max(x, left) > 0 < min(y + h, bottom) - max(y, top)
            )
            homes += inside
            if touched and not inside:
                found.append(f"a piece cuts through the axes at {left, top}")
        if homes != 1:
            found.append(f"the axes at {left, top} are in {homes} pieces")
    return found


@on_every_page
def test_a_figure_says_where_its_panels_are(page):
    "All of it is in the pieces, and no piece cuts through axes."
    wrong = {
        label: faults
        for label, data in figures(read(NBS / f"{page}.ipynb"))
        if (faults := complain(png_of(data)))
    }
    assert not wrong, wrong


def captions(page):
    for cell, source in cells(NBS / f"{page}.ipynb", "code"):
        said = dict(re.findall(r'^#\| (fig-\w+): *"(.*)"$', source, flags=re.M))
        for output in cell["outputs"]:
            if "image/png" in output.get("data", {}):
                yield said, (places_in(png_of(output["data"])) or {}).get("frames", [])


SIDES = re.compile(
    r"\b(Left|Right|Middle|Top|Bottom|Above|Below|Upper|Lower)\b( left| right)?[:,]"
    r"|\((left|right|middle|top|bottom|above|below)\b|\bOn the (left|right)\b"
    r"|\b(left|right|middle|upper|lower|top|bottom|first|last) panel\b"
)


@on_every_page
def test_captions_name_panels_by_their_letters(page):
    "On a phone nothing is left or right of anything."
    for said, frames in captions(page):
        caption = said.get("fig-cap", "")
        named = re.findall(r"(?<!\w)\(([a-z])(?:–([a-z]))?\)", caption)
        letters = "abcdefghijklmnopqrstuvwxyz"[: len(frames)]
        assert len(frames) < 2 or not SIDES.search(caption), caption
        assert len(frames) > 1 or "**(a)**" not in caption, caption
        assert not caption.startswith("(a)"), "a list begins so: write **(a)**"
        for first, last in named if len(frames) > 1 else ():
            assert {first, last or first} <= {*letters}, f"no panel {first}: {caption}"


# What tools/panels.py does with a figure


def grid(rows, columns, **options):
    fig, axes = plt.subplots(rows, columns, squeeze=False, **options)
    for k, ax in enumerate(axes.flat):
        ax.plot([0, 1], [k, k + 1])
    return fig, axes


@pytest.fixture(autouse=True)
def styled():
    with plt.style.context("infattn_nb.infattn"):
        yield
    plt.close("all")


def places(fig):
    png = base64.b64decode(stored(fig)[0])
    assert not complain(png)
    return places_in(png)


def ink_of(piece, png):
    "The picture of a piece."
    image = np.asarray(Image.open(io.BytesIO(png)).convert("L"))
    width, height = piece["size"]
    out = np.full((height, width), 255)
    for x, y, w, h, to_x, to_y in piece["parts"]:
        out[to_y : to_y + h, to_x : to_x + w] = image[y : y + h, x : x + w]
    return out


def test_panels_are_lettered_row_by_row():
    fig, axes = grid(2, 2)
    axes[1, 0].set_title("loss")
    stored(fig)
    stored(fig)  # a second time nothing is added
    assert [ax.get_title() for ax in axes.flat] == ["(a)", "(b)", "(c) loss", "(d)"]
    assert panels_of(fig) == [*axes.flat]


def test_shared_tick_labels_stand_on_every_piece():
    "The pieces of a grid that shares its axes have the sizes of one that does not."
    shared, own = (
        places(grid(2, 3, sharex=share, sharey=share, figsize=(8, 5))[0])["pieces"]
        for share in ("all", False)
    )
    assert [len(piece["parts"]) for piece in shared] == [2, 3, 3, 1, 2, 2]
    assert [len(piece["parts"]) for piece in own] == [1] * 6
    fig, _ = grid(1, 2, sharey=True)
    png = base64.b64decode(stored(fig)[0])
    first, second = (ink_of(piece, png) for piece in places_in(png)["pieces"])
    labels = (
        places_in(png)["frames"][0][0] - places_in(png)["pieces"][0]["parts"][0][0] - 8
    )
    rows = min(len(first), len(second))
    first, second = first[-rows:, :labels] < 128, second[-rows:, :labels] < 128
    assert first.sum() > 100
    assert (first & second).sum() > 0.9 * first.sum()  # the same labels, the same place


def test_a_wrong_place_is_seen():
    "The rule above can fail."
    fig, _ = grid(1, 2)
    png = base64.b64decode(stored(fig)[0])
    assert not complain(png)
    import panels

    right = panels.Picture.piece
    try:
        panels.Picture.piece = lambda self, ax: shifted(right(self, ax))
        assert complain(base64.b64decode(stored(fig)[0]))
    finally:
        panels.Picture.piece = right
    assert complain(png_without_places(png))


def shifted(piece):
    return dict(piece, parts=[[x + 40, *rest] for x, *rest in piece["parts"]])


def png_without_places(png):
    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").save(out, "png")
    return out.getvalue()
