"""Findings files: the committed ones, and files with errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpc_judge.clients import peer
from grpc_judge.clients.findings import Finding, read_findings
from grpc_judge.runner.manifest import ManifestError

FOLDERS = sorted(path.parent for path in Path(peer.__file__).parent.glob("*/findings.toml"))
GOOD = """
[[finding]]
clauses = ["growth", "cap"]
means = "It never waits."
issues = ["some/where#12"]
"""


def read(folder, text):
    (folder / "findings.toml").write_text(text)
    return read_findings(folder)


def test_what_is_written(tmp_path):
    """IO-4: `findings.toml` explains what a peer's failures mean; it may be missing or empty."""
    assert read_findings(tmp_path) == ()
    assert read(tmp_path, "") == ()
    assert read(tmp_path, GOOD) == (
        Finding(clauses=("growth", "cap"), means="It never waits.", issues=("some/where#12",)),
    )


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_those_that_are_there(folder):
    """IO-4: every committed findings file can be read, explains failures in sentences, and lists no clause twice."""
    findings = read_findings(folder)
    clauses = [clause for finding in findings for clause in finding.clauses]
    assert findings
    assert len(clauses) == len(set(clauses))
    assert all(finding.means.endswith(".") for finding in findings)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (('"growth"', '"grwoth"'), "clause='grwoth': expected one of accept-does-not-reset, "),
        (('["growth", "cap"]', "[]"), "clauses=[]: expected a list of names of clauses"),
        (('"It never waits."', '""'), "means='': expected a non-empty string"),
        (("some/where#12", "where#12"), "expected a list of owner/repository#number"),
        (("means", "meaning"), "key='meaning': expected one of clauses, issues, means"),
        (("[[finding]]", "[[findings]]"), "key='findings': expected one of finding"),
        (("[[finding]]", "[[finding"), "findings.toml: "),
    ],
)
def test_files_that_are_wrong(tmp_path, change, complaint):
    """BP-4: an error in a findings file names the file, the key, the value and what is expected."""
    with pytest.raises(ManifestError) as caught:
        read(tmp_path, GOOD.replace(*change))
    assert str(caught.value).startswith(f"{tmp_path}/findings.toml: ")
    assert complaint in str(caught.value)
