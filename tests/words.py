"""Checks the text against the glossary (docs/reference/glossary.md) for unidiomatic phrases and outdated terms.

`make check` runs it on the pages, and on docstrings, comments and messages in the code.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BETTER = {
    r"(?:^|[.;:] |\"{3})Who (?:asks|connects|finds|has|is|loses|performs|waits)\b(?![^.]*\?)": "name the subject",
    r"\b(?:for|of|to) who\b": "those who; or name them",
    r"\bvouch(?:es)? for\b": "is signed by a trusted CA",
    r"\b(?:least|more|most|which) say\b": "precedence",
    r"\bthe server's word\b": "what the server asks for; a server hint",
    r"\bhears? of\b": "is called for; is notified of",
    r"\bKnow of none\b|\bTake note of it\b|\"\"\"Be alive\b": "a verb with content",
    r"\b(?:im)?patient\b": "wait-for-ready, fail-fast",
    r"\b(?:a|the|each|every|first|last|next|another) try\b": "attempt",
    r"\bbegins? anew\b": "starts again",
    r"\bfor want of\b": "for lack of",
    r"\bin vain\b": "without success",
    r"\b(?:some|no)body\b|\bwhoever\b": "name the subject",
    r"\bis no (?:TLS|HTTP|gRPC|SQLite|coroutine|number|text|listener)\b": "is not a",
    r"\b(?:threaded|asyncio|both|either) faces?\b": "API",
    r"\bunasked\b": "by itself",
    r"\bin spite of\b": "despite",
    r"\bfor so (?:long|many)\b": "this long, this many",
    r"\blets? go of\b": "releases",
    r"\bis told of\b": "is notified of",
    r"\"\"\"(?:Refuse what|Take in|Have [a-z]+ called)\b": "check, reject, handle, call",
}
ROOMS = ("grpc_backoff", "interop", "examples", "benchmarks", "docs")
SPARED = ("interop/grpc_judge/generated/", "docs/conformance/README.md", "docs/conformance/servers.md", "CHANGELOG.md")
"""Generated code and pages, and the changelog, which has the words of older versions."""


def pages() -> list[Path]:
    """Return every file whose text is checked."""
    found = [*ROOT.glob("*.md")]
    for room in ROOMS:
        found += [path for path in (ROOT / room).rglob("*") if path.suffix in {".md", ".py"}]
    return [path for path in sorted(found) if not path.relative_to(ROOT).as_posix().startswith(SPARED)]


def findings(text: str) -> list[tuple[int, str, str]]:
    """Return each finding as its line, phrase and better wording. Phrases are also found across line breaks."""
    flat = re.sub(r"\n *(?:# )?", lambda end: "\n" + " " * (len(end[0]) - 1), text)
    found = []
    for phrase, better in BETTER.items():
        flags = re.MULTILINE | (0 if "Who" in phrase else re.IGNORECASE)
        for match in re.compile(phrase.replace(" ", r"\s+"), flags).finditer(flat):
            begin = match.end() - len(match[0].lstrip(" .;:\n"))
            found.append((flat.count("\n", 0, begin) + 1, re.sub(r"\s+", " ", flat[begin : match.end()]), better))
    return sorted(found)


def main() -> int:
    """Print every finding; return 1 if there are any."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {phrase!r}: better: {better}"
        for path in pages()
        for line, phrase, better in findings(path.read_text("utf-8"))
    ]
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
