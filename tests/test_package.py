"""What is published with the code: metadata, the README as PyPI shows it, workflows and commit hooks."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

import grpc_backoff

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
HOME = PYPROJECT["project"]["urls"]["Homepage"]
BLOB = f"{HOME}/blob/v{grpc_backoff.__version__}/"
CLASSIFIED = re.findall(r"Python :: (3\.\d+)", "\n".join(PYPROJECT["project"]["classifiers"]))
WORKFLOWS = ROOT / ".github" / "workflows"
TESTS = (WORKFLOWS / "tests.yml").read_text("utf-8")
LINK = re.compile(r"\[[^\]]*\]\(([^)]+)\)")


def rendered():
    """Return the README as the wheel's metadata has it."""
    text = (ROOT / "README.md").read_text("utf-8")
    for rule in PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"].replace("$HFPR_VERSION", grpc_backoff.__version__), text)
    return text


def number(version):
    return tuple(int(part) for part in version.split("."))


def commands(recipe):
    """Return the commands of a target in the Makefile."""
    (found,) = re.findall(rf"^{recipe}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    return [line.strip() for line in found.splitlines()]


def test_every_link_of_the_readme_leads_somewhere_on_pypi():
    """Every link of the README is absolute on PyPI, and leads to an existing file if it leads into the repository."""
    relative, absolute = LINK.findall((ROOT / "README.md").read_text("utf-8")), LINK.findall(rendered())
    paths = [link.removeprefix(BLOB).partition("#")[0] for link in absolute if link.startswith(BLOB)]

    assert any(not link.startswith("http") for link in relative)
    assert [link for link in absolute if not link.startswith("https://")] == []
    assert paths
    assert [path for path in paths if not (ROOT / path).is_file()] == []


def test_the_sdist_has_nothing_that_builds_leave():
    """What folders of clients, servers and proxies ignore is not in the sdist either: hatch reads one .gitignore."""
    left_out = PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["exclude"]
    left_out += [line.strip("/") for line in (ROOT / ".gitignore").read_text("utf-8").splitlines()]
    ignored = [
        path.parent.relative_to(ROOT) / line.strip("/")
        for room in ("interop", "tests")
        for path in (ROOT / room).rglob(".gitignore")
        if "node_modules" not in path.parts and not any(part.startswith(".venv") for part in path.parts)
        for line in path.read_text("utf-8").split()
    ]

    assert ignored
    assert [
        path
        for path in ignored
        if path.name not in left_out and not any(fnmatch(f"/{path}", each) for each in left_out)
    ] == []


def test_every_anchor_of_the_readme_is_a_heading():
    """Every anchor that the README links to is a heading. `make docs` checks the anchors within the pages."""
    anchors = re.findall(r"\]\(([\w/.-]+\.md)#([\w-]+)\)", (ROOT / "README.md").read_text("utf-8"))

    assert anchors
    assert [(page, anchor) for page, anchor in anchors if anchor not in slugs(page)] == []


def slugs(page):
    """Return the anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_pages_for_contributors_link_to_files():
    """On the pages for contributors, links lead to existing files or to the project's site."""
    for page in ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md"):
        links = LINK.findall((ROOT / page).read_text("utf-8"))
        assert [link for link in links if not (link.startswith(f"{HOME}/") or (ROOT / link).is_file())] == []


def test_the_workflow_tests_every_python_that_is_classified():
    """Both matrices of the workflow have exactly the Python versions of the classifiers."""
    everything, others = re.findall(r"^ +python: \[(.*)\]$", TESTS, re.MULTILINE)

    assert number(CLASSIFIED[0]) == number(PYPROJECT["project"]["requires-python"].removeprefix(">="))
    assert everything == others
    assert [python.strip('" ') for python in others.split(",")] == CLASSIFIED


@pytest.mark.parametrize("workflow", ["tests", "nightly"])
def test_the_parts_are_everything(workflow):
    """The workflows run every part of the Makefile; the last has all tests that no other part has."""
    (parts,) = re.findall(r"^ +part: \[(.*)\]$", (WORKFLOWS / f"{workflow}.yml").read_text("utf-8"), re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text("utf-8")
    *named, last = re.findall(r"^PART_(\w+) = (.*)$", makefile, re.MULTILINE)

    assert parts.split(", ") == [part for part, _ in [*named, last]]
    assert last[1] == f"tests $(patsubst %,--ignore=%,{' '.join(f'$(PART_{part})' for part, _ in named)})"
    assert [path for _, paths in named for path in paths.split() if not (ROOT / path).is_dir()] == []


def test_actions_are_pinned():
    """Each action is pinned by its hash, because a tag can be moved, and has the tag beside it."""
    text = "\n".join(path.read_text("utf-8") for path in WORKFLOWS.glob("*.yml"))
    used = re.findall(r"uses: (.+)$", text, re.MULTILINE)

    assert len(used) > 10
    assert [each for each in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", each)] == []


def test_the_workflow_tests_the_oldest_grpcio():
    """The workflow tests the oldest supported grpcio; a Python without wheels for it gets a newer one."""
    oldest = dict(re.findall(r'- python: "([\d.]+)"\n +oldest: ([\d.]+)', TESTS))
    (needed,) = [each for each in PYPROJECT["project"]["dependencies"] if each.startswith("grpcio")]

    assert list(oldest) == CLASSIFIED
    assert min(oldest.values(), key=number) == needed.removeprefix("grpcio>=") + ".0"


def test_commit_hooks_run_what_make_check_runs():
    """The commit hooks run the same commands as `make check`, in the same order."""
    hooks = re.findall(r"^ +entry: (.+)$", (ROOT / ".pre-commit-config.yaml").read_text("utf-8"), re.MULTILINE)

    assert hooks == [command.replace("$(BIN)", ".venv/bin") for command in commands("check")]


def test_the_changelog_is_dated():
    """Every version in the changelog but the unreleased one has a date, and the newest is the code's version."""
    unreleased, *released = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)

    assert unreleased == "Unreleased"
    assert released[0].startswith(f"{grpc_backoff.__version__} - ")
    assert [each for each in released if not re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", each)] == []
