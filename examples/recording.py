"""Records the demo in a terminal and draws it for README and Home: `make recording`.

asciinema records, svg-term-cli draws. In between, what the terminal showed within a quarter of a second becomes one
frame, which keeps the picture small.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "demo.svg"

_CAST = ROOT / "build" / "demo.cast"
_COLUMNS, _ROWS = 120, 30
_COMMAND = "grpc-backoff demo"
_FRAME = 0.25  # seconds
_LAST = 8.0  # seconds for which the final frame stays, before the picture begins again
_SVG_TERM = "svg-term-cli@2.1.1"


def main() -> None:
    """Record the demo, and draw it if all of its checks hold."""
    programs = Path(sys.executable).parent
    _CAST.parent.mkdir(exist_ok=True)
    size = ["--cols", str(_COLUMNS), "--rows", str(_ROWS)]
    command = f"echo '$ {_COMMAND}'; '{programs}/{_COMMAND.split(maxsplit=1)[0]}' demo"
    _run(programs / "asciinema", "rec", "--quiet", "--overwrite", *size, "--command", command, _CAST)
    recorded = _CAST.read_text("utf-8")
    if "ok    " not in recorded or "FAILED" in recorded:
        sys.exit("a check of the demo failed: nothing was drawn")
    _CAST.write_text(thin(recorded), "utf-8")
    _run("npx", "--yes", _SVG_TERM, "--in", _CAST, "--out", PICTURE, "--window", "--no-cursor")


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)  # noqa: S603


def thin(cast: str) -> str:
    """Return an asciicast of version 2 with one event for each frame, and nothing about the machine."""
    first, *events = [json.loads(line) for line in cast.splitlines()]
    header = {"version": 2, "width": first["width"], "height": first["height"]}
    frames: dict[int, str] = {}
    for moment, kind, text in events:
        if kind == "o":
            number = int(moment / _FRAME)
            frames[number] = frames.get(number, "") + text
    lines: list[object] = [[number * _FRAME, "o", text] for number, text in frames.items()]
    end = max(frames, default=0) * _FRAME + _LAST
    return "".join(f"{json.dumps(line)}\n" for line in [header, *lines, [end, "o", "\r\n"]])


if __name__ == "__main__":
    main()
