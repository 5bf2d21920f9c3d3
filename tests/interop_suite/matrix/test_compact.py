"""Compact pictures: they take few bytes, and look like the originals."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from matplotlib import rc_context
from matplotlib.figure import Figure

from grpc_judge.matrix.compact import compact
from grpc_judge.runner.written import write

PAGES = Path(__file__).parents[3] / "docs" / "conformance"
SVG = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="7.123pt">{}</svg>'


def drawn(content):
    """Compact a picture with this content and return what is left of it."""
    return compact(SVG.format(content)).partition(">")[2].rpartition("</svg>")[0]


@pytest.mark.parametrize(
    ("content", "left"),
    [
        (
            "<metadata>who</metadata> <g id='a'> <g> <text x='1.26' id='b'>said</text> </g></g>",
            '<text x="1.3">said</text>',
        ),
        ("<path d='M 0 1.04 \nL 2.51 1.04 \nL 2.51 4 \nz\n'/>", '<path d="M0 1H2.5V4z"/>'),
        ("<path d='M 0 0 L 1 1'/><path d='M 2 2 L 3 3'/>", '<path d="M0 0L1 1M2 2L3 3"/>'),
        (
            "<path d='M0 0L1 1' style='a: b'/><path d='M2 2L3 3'/>",
            '<path d="M0 0L1 1" style="a:b"/><path d="M2 2L3 3"/>',
        ),
        ("<path d='M 0 0 C 1 1 2 2 0 3'/>", '<path d="M0 0C1 1 2 2 0 3"/>'),
        ("<g clip-path='url(#long)'><g id='long'/></g>", '<g clip-path="url(#i0)"><g id="i0"/></g>'),
        ("<image transform='scale(1 -0.0123)' x='1.23'/>", '<image transform="scale(1 -0.0123)" x="1.23"/>'),
    ],
)
def test_what_is_left(content, left):
    """IO-4: compacting removes what is invisible, and keeps the rest in place to a tenth of a point."""
    assert drawn(content).replace("'", '"') == left


def test_marks_have_the_look_of_what_they_refer_to():
    """IO-4: a mark repeats its style only if it differs from its template's, and duplicates are drawn once."""
    path = "<path id='m' d='M0 0' style='stroke: red'/>"
    red, blue = (f"<use xlink:href='#m' x='1' style='stroke: {colour}'/>" for colour in ("red", "blue"))

    assert drawn(path + red + red + blue).count("<use") == 2
    assert drawn(path + red + blue).count("stroke:blue") == 1
    assert drawn(path + red + blue).count("stroke:red") == 1


def test_a_style_is_written_once():
    """IO-4: a style that several elements have becomes a class of the style sheet."""
    texts = "".join(f"<text style='fill: {colour}'>{colour}</text>" for colour in ("red", "blue", "red"))
    left = drawn(f"<defs><style>*{{a:b}}</style></defs>{texts}")

    assert "<style>*{a:b}.s0{fill:red}</style>" in left
    assert left.count('<text class="s0">red</text>') == 2
    assert left.count('<text style="fill:blue">blue</text>') == 1


def test_a_style_with_a_reference_stays_with_its_element():
    """IO-4: compacting again finds every reference, because none is in the style sheet."""
    hatched = "<text style='fill: url(#hatch)'>a</text>"
    content = f"<defs><style>*{{a:b}}</style><pattern id='hatch'/></defs>{hatched}{hatched}"
    once = compact(SVG.format(content))

    assert once.count('style="fill:url(#i0)"') == 2
    assert compact(once) == once


def test_a_picture_of_matplotlibs():
    """IO-4: a compacted matplotlib picture keeps its texts and references; compacting it again changes nothing."""
    figure = Figure()
    axes = figure.subplots()
    axes.plot([1, 2, 3], [1, 3, 2], marker="x", label="one")
    axes.bar([1, 2], [1, 2], fill=False, hatch="//")
    axes.legend()
    before = saved(figure)
    after = compact(before)
    root = ET.fromstring(after)
    ids = {each.get("id") for each in root.iter()}

    assert len(after) < 0.6 * len(before)
    assert (
        list(map(str.strip, ET.fromstring(before).itertext())).count("one") == list(root.itertext()).count("one") == 1
    )
    assert set(re.findall(r"(?:\"|\()#(i\d+)", after)) == ids - {None}
    assert compact(after) == after


def saved(figure):
    written = io.StringIO()
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(written, format="svg")
    return written.getvalue()


def test_results_have_a_line_for_each_verdict(tmp_path):
    """IO-4: the results file is short and has a line for each peer's verdicts, so that a diff shows what changed."""
    verdicts = [{"clause": name, "says": "so"} for name in ("growth", "cap")]
    write({"peers": [{"name": "a", "verdicts": verdicts}, {"name": "b", "verdicts": []}]}, tmp_path / "all.json")
    text = (tmp_path / "all.json").read_text()

    assert len(text.splitlines()) == 3
    assert json.loads(text)["peers"][0]["verdicts"] == verdicts


def test_the_pages_are_small():
    """IO-4: the matrix's pictures and results take less than 0.6 MB in the repository."""
    assert sum(path.stat().st_size for path in PAGES.iterdir()) < 600_000
