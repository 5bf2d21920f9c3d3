"""The site: its navigation has every page once, and its build is strict. `make docs` checks links and the rest."""

from __future__ import annotations

import re

from grpc_backoff.ledger import OperationState
from tests.docs.pages import DOCS

ROOT = DOCS.parent
CONFIG = (ROOT / "mkdocs.yml").read_text("utf-8")
NAVIGATION = re.findall(r"^ +- .+: (\S+\.md)$", CONFIG.partition("\nnav:\n")[2], re.MULTILINE)


def test_every_page_is_in_the_navigation():
    """The navigation has every page of `docs/` once, and its other entries are files next to the README."""
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}

    assert len(NAVIGATION) == len(set(NAVIGATION))
    assert pages <= set(NAVIGATION)
    assert {page for page in set(NAVIGATION) - pages if not (ROOT / page).is_file()} == set()


def test_every_rule_can_be_linked():
    """The site's hook knows the letters of every rule, so that each rule has an anchor and each mention is a link."""
    letters = set(re.findall(r"^\*\*([A-Z]{2})-\d+\.\*\*", (DOCS / "behaviour.md").read_text("utf-8"), re.MULTILINE))
    known = re.findall(r"(?<=\(\?:)[A-Z]{2}(?:\|[A-Z]{2})+(?=\))", (DOCS / "hooks.py").read_text("utf-8"))

    assert len(known) == 2
    assert [set(each.split("|")) for each in known] == [letters, letters]


def test_the_last_rule_of_a_range_is_the_last_one():
    """A page that refers to the rules of a section from the first on, such as RT-1 to RT-15, has the last one, too."""
    last = {}
    for letters, number in re.findall(
        r"^\*\*([A-Z]{2})-(\d+)\.\*\*", (DOCS / "behaviour.md").read_text("utf-8"), re.MULTILINE
    ):
        last[letters] = max(int(number), last.get(letters, 0))
    for path in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        if path.name != "behaviour.md":
            for letters, number in re.findall(r"\b([A-Z]{2})-1\s+to\s+\1-(\d+)", path.read_text("utf-8")):
                assert int(number) == last[letters], path.relative_to(ROOT)


def test_the_rows_of_a_table_have_the_cells_of_its_header():
    """The rows of a table have as many cells as its header: extra cells would disappear without a warning."""
    for path in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]:
        text = re.sub(r"^```.*?^```$|`[^`\n]*`", "code", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            cells = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
            assert len(cells) == 1, f"{path.relative_to(ROOT)}: {table.splitlines()[0]}"


def test_the_build_is_strict():
    """The build is strict and not `--quiet`, because MkDocs counts only warnings that it shows."""
    (command,) = re.findall(r"^\t(.*mkdocs build.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)

    assert "--strict" in command
    assert "--quiet" not in command


def test_diagrams_have_the_pages_colours():
    """Each class of a diagram has a colour on the page, where its own style is left out."""
    drawn = "".join((DOCS / "images" / f"{name}.svg").read_text("utf-8") for name in ("states", "costs"))
    style = (DOCS / "stylesheets" / "extra.css").read_text("utf-8")
    classes = set(re.findall(r'class="(\w+)"', drawn))

    assert len(classes) >= 5
    assert {name for name in classes if f".diagram .{name} {{" not in style} == set()


def test_each_state_of_an_operation_is_drawn():
    """LG-1: the picture of an operation's states has each of them, and so has the table under it."""
    drawn = (DOCS / "images" / "operations.svg").read_text("utf-8")
    (names,) = re.findall(r'<g class="ink" text-anchor="middle" font-weight="bold">(.*?)</g>', drawn, re.DOTALL)
    page = (DOCS / "ledger.md").read_text("utf-8").partition("## The states of an operation")[2].partition("\n##")[0]

    states = {state.value for state in OperationState}
    assert set(re.findall(r">(\w+)</text>", names)) == states
    assert set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE)) == states


def test_the_search_needs_no_other_host():
    """The plugin `offline` would load its worker for pages on a disk from another host, unless there is one here."""
    assert "- offline" in CONFIG
    (worker,) = re.findall(r"^    - (\S+iframe-worker.js)", CONFIG, re.MULTILINE)
    assert (DOCS / worker).is_file()


QUESTIONS = (
    "service config",
    "google-cloud-pubsub",
    "Django, FastAPI, gunicorn",
    "mutual TLS",
    "DNS",
    "deploy without losing calls",
    "server is gone for an hour",
    "see what it does",
    "test my code",
    "What does it cost",
    "turn it off",
)


def test_home_leads_to_what_people_ask():
    """The README links to Home, where each common question has a row with a link."""
    rows = re.findall(r"^\| (.+\?) \| (.+) \|$", (DOCS / "index.md").read_text("utf-8"), re.MULTILINE)

    assert "](docs/index.md)" in (ROOT / "README.md").read_text("utf-8")
    for asked in QUESTIONS:
        (answer,) = [answer for question, answer in rows if asked in question]
        assert re.search(r"\]\([\w/-]+\.md(#[\w-]+)?\)", answer), asked
