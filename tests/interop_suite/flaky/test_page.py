"""The page about the suite: its scripts can be played, and its list of behaviours is complete."""

from __future__ import annotations

import re
from pathlib import Path

from grpc_judge import flaky
from grpc_judge.flaky.behaviours import BY_NAME
from grpc_judge.flaky.script import steps_of

PAGE = (Path(__file__).parents[3] / "docs" / "interop.md").read_text("utf-8")


def test_scripts_are_some():
    """IO-3: the page shows a valid script as Python objects, and the same one as JSON."""
    shown = eval(re.search(r"script = (\[.+\])\n", PAGE)[1], vars(flaky))
    text = re.search(r"a script is JSON: `(\[.*?\])`", PAGE, re.DOTALL)[1]

    assert flaky.read_script(text) == steps_of(shown)


def test_behaviours_are_all_there():
    """IO-3: the page lists every behaviour."""
    listed = PAGE.partition(" in the timeline, are ")[2].partition("With `Tls")[0]

    assert set(re.findall(r"`(\w+)`", listed)) == set(BY_NAME)
