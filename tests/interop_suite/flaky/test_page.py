"""The page about the suite: its script can be played, and its list of behaviours is complete."""

from __future__ import annotations

import re
from pathlib import Path

from grpc_judge.flaky.behaviours import BY_NAME
from grpc_judge.flaky.script import Script

PAGE = (Path(__file__).parents[3] / "docs" / "interop.md").read_text("utf-8")


def test_script_is_one():
    """IO-3: the script on the page is valid."""
    text = re.search(r'FlakyServer\("([^"]+)"\)', PAGE)[1]

    assert len(Script.parse(text).steps) == 4


def test_behaviours_are_all_there():
    """IO-3: the page lists every behaviour."""
    listed = PAGE.partition("The behaviours are ")[2].partition("With `Tls")[0]

    assert set(re.findall(r"`(\w+)`", listed)) == set(BY_NAME)
