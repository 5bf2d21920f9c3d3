"""Records the demo in a terminal and draws the picture for the README and the home page: `make recording`.

asciinema records the demo, and svg-term-cli draws it. Before that, this program shortens the recording to a few seconds
and merges all output that then comes within a quarter of a second into one frame. Where the system asks for reduced
motion, the picture stands still and shows the last frame.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "demo.svg"

_CAST = ROOT / "build" / "demo.cast"
_COLUMNS, _ROWS = 80, 32
_COMMAND = "python -m examples.demo"
_FRAME = 0.25  # seconds
_PLAYED = 8.0  # seconds into which the recording is shortened
_LAST = 4.0  # seconds that the final frame stays before the picture starts over
_SVG_TERM = "svg-term-cli@2.1.1"


def main() -> None:
    """Record the demo and draw the picture if all of the demo's checks pass."""
    programs = Path(sys.executable).parent
    _CAST.parent.mkdir(exist_ok=True)
    size = ["--cols", str(_COLUMNS), "--rows", str(_ROWS)]
    command = f"echo '$ {_COMMAND}'; '{programs}/python' -m examples.demo"
    _run(programs / "asciinema", "rec", "--quiet", "--overwrite", *size, "--command", command, _CAST)
    recorded = _CAST.read_text("utf-8")
    if "ok    " not in recorded or "FAILED" in recorded:
        sys.exit("a check of the demo failed: nothing was drawn")
    _CAST.write_text(thin(recorded), "utf-8")
    _run("npx", "--yes", _SVG_TERM, "--in", _CAST, "--out", PICTURE, "--window", "--no-cursor")
    PICTURE.write_text(still(PICTURE.read_text("utf-8")), "utf-8")


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)  # noqa: S603


def thin(cast: str) -> str:
    """Return an asciicast (version 2) with one event for each frame and without any information about the machine."""
    first, *events = [json.loads(line) for line in cast.splitlines()]
    header = {"version": 2, "width": first["width"], "height": first["height"]}
    frames: dict[int, str] = {}
    pace = min(1.0, _PLAYED / max((moment for moment, *_ in events), default=1.0))
    for moment, kind, text in events:
        if kind == "o":
            number = int(moment * pace / _FRAME)
            frames[number] = frames.get(number, "") + text
    lines: list[object] = [[number * _FRAME, "o", text] for number, text in frames.items()]
    end = max(frames, default=0) * _FRAME + _LAST
    return "".join(f"{json.dumps(line)}\n" for line in [header, *lines, [end, "o", "\r\n"]])


def still(picture: str) -> str:
    """Return a picture by svg-term-cli with a rule that shows its last frame where reduced motion is preferred.

    Raises:
        ValueError: the picture has no animation of the expected form.
    """
    frames = re.search(r"@keyframes \w+\{.*?(translateX\([^)]*\))\}\}", picture, re.DOTALL)
    if frames is None:
        raise ValueError("the picture has no keyframes")
    last = f"g[style*=animation]{{animation:none!important;transform:{frames[1]}}}"
    rule = f"@media (prefers-reduced-motion: reduce){{{last}}}"
    return picture.replace("<style>", f"<style>{rule}", 1)


if __name__ == "__main__":
    main()
