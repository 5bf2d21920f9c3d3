"""The contention example without etcd: its error message, its check of the results, and the page about it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from examples import contention
from examples.race import Result
from grpc_backoff import parse_policy
from grpc_backoff.policy.presets import RETRY_PRESETS
from tests.docs.pages import read

ROOT = Path(__file__).parents[2]
PAGE = read("contention.md")
COMMANDS = re.findall(r"^python (examples/\S+)(.*)$", PAGE, re.MULTILINE)


def test_without_etcd(tmp_path, monkeypatch):
    """RT-5: without etcd, the example prints one line that says what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))

    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "contention.py"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )

    assert done.returncode == 1
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert "install Debian's package etcd-server" in done.stderr


@pytest.mark.parametrize("text", ["0", "2,", "2,-1", "two", ""])
def test_numbers_of_clients(text):
    """RT-5: `--clients` rejects anything but a list of numbers and says what is expected."""
    done = CliRunner().invoke(contention.main, ["--clients", text])

    assert done.exit_code == 2
    assert f"{text!r}: expected" in done.output


@pytest.mark.parametrize(
    ("done", "unknown", "counter", "adds_up"),
    [
        (5, 0, 5, True),
        (5, 0, 4, False),  # a commit was reported as done but is missing
        (5, 0, 6, False),  # one was written twice, or despite ABORTED
        (5, 2, 7, True),  # two calls were lost after their commits
        (5, 2, 8, False),
        (5, 2, 4, False),
    ],
)
def test_adding_up(done, unknown, counter, adds_up):
    """RT-5: the counter includes each commit reported as done exactly once; unknown outcomes may be included or not."""
    result = Result(
        clients=2,
        policy="contention",
        commits=9,
        done=done,
        attempts=20,
        most_attempts=7,
        unknown=unknown,
        median=0.1,
        largest=0.2,
        counter=counter,
    )

    assert result.adds_up is adds_up


def test_the_commands_on_the_page():
    """RT-5: every command on the page exists and accepts its options."""
    assert len(COMMANDS) >= 3
    for file, arguments in COMMANDS:
        assert (ROOT / file).is_file()
        assert contention.main.make_context("contention", shlex.split(arguments)).params["commits"] > 0


def test_the_tables_on_the_page():
    """RT-5: each table on the page matches the command above it in options, policies and numbers of clients."""
    shown = re.findall(r"```\npython examples/contention.py(.*?)\n```\n\n```text\n(.*?)\n```", PAGE, re.DOTALL)
    assert len(shown) == len(COMMANDS)
    for arguments, table in shown:
        options = contention.main.make_context("contention", shlex.split(arguments)).params
        policies = [*contention.POLICIES, *options["against"]]
        rows = re.findall(r"^ +(\d+)   (\S.*?) {2,}[\d.]+%", table, re.MULTILINE)
        assert rows == [(str(number), policy) for number in options["clients"] for policy in policies]
        assert table.startswith(f"{options['commits']} commits of each client")
        assert f"{options['work']:g} ms of work" in table
        assert ("continuously" in table) is options["steady"]


def test_the_policies_on_the_page():
    """BP-1: the policy strings, attempts and waits on the page match the two policies."""
    old_way, preset = parse_policy(contention.POLICIES["linear, 3 retries"]), RETRY_PRESETS["contention"]
    assert f"`{contention.POLICIES['linear, 3 retries']}`" in PAGE
    assert f"| at most | {old_way.max_attempts} attempts | {preset.max_attempts} attempts |" in PAGE
    narrowed = parse_policy("preset: contention, codes: ABORTED")
    assert PAGE.count("preset: contention, codes: ABORTED") == 2
    assert narrowed == replace(preset, codes={"ABORTED"})
    assert preset.codes == set(
        re.findall(r"^\| retried codes \| ABORTED \| (.*) \|$", PAGE, re.MULTILINE)[0].split(", ")
    )
    assert f"| waits | {waits(old_way)} ms | {waits(preset)} ms |" in PAGE


def waits(policy):
    bounds = [policy.bounds(n) for n in range(1, policy.max_attempts)]
    return ", ".join("-".join(f"{1000 * wait:g}" for wait in sorted({low, high})) for low, high in bounds)
