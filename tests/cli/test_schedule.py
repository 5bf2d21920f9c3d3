"""`grpc-backoff schedule`: the tables of all policies, as text and as JSON."""

from __future__ import annotations

import json

import pytest

from grpc_backoff.policy.presets import PRESETS
from tests.cli.running import check_refused, invoke


def run(*arguments):
    return invoke("schedule", *arguments)


def cells(output):
    """Return the cells of each line that begins with a number."""
    rows = [[cell for cell in line.split("  ") if cell.strip()] for line in output.splitlines()]
    return [[cell.strip() for cell in row] for row in rows if row and row[0].strip().isdigit()]


@pytest.mark.parametrize(
    ("policy", "rows"),
    [
        (
            "standard",
            [
                ["1", "1 s", "0.5 s", "1.5 s", "1 s", "0.5 s - 1.5 s"],
                ["2", "2 s", "1 s", "3 s", "3 s", "1.5 s - 4.5 s"],
                ["3", "4 s", "2 s", "6 s", "7 s", "3.5 s - 10.5 s"],
                ["4", "8 s", "4 s", "12 s", "15 s", "7.5 s - 22.5 s"],
                ["5", "16 s", "8 s", "24 s", "31 s", "15.5 s - 46.5 s"],
            ],
        ),
        (
            "retry: 3, delay: 1s, backoff: linear",
            [
                [str(number), *[f"{number} s"] * 3, *[f"{total} s"] * 2]
                for number, total in ((1, 1), (2, 3), (3, 6), (4, 10))
            ],
        ),
    ],
)
def test_rows(policy, rows):
    """BP-1: each row has the wait, its bounds, the expected total (31 s for `standard`) and the bounds of the total."""
    done = run(policy)

    assert done.exit_code == 0
    assert cells(done.output) == rows


@pytest.mark.parametrize(
    ("policy", "ending"),
    [
        ("standard", "Gives up after 5 attempts, with 4 waits between them, 7.5 s - 22.5 s in total (15 s expected)."),
        (
            "contention",
            "Gives up after 7 attempts, with 6 waits between them, 0.63 s - 0.945 s in total (0.788 s expected).",
        ),
        ("grpc", "Continues indefinitely, like the last row."),
        ("max_attempts: unlimited, delay: 1s, backoff: linear, max_delay: 1h", "Continues indefinitely."),
        ("delay: 1s", "One attempt, no retries."),
        (
            "durable",
            "Continues like the last row, and gives up when the next wait would end after the deadline of 259200 s.",
        ),
        (
            "max_attempts: unlimited, delay: 1s, backoff: linear, max_delay: 1h, deadline: 1h",
            "Continues, and gives up when the next wait would end after the deadline of 3600 s.",
        ),
        (
            "max_attempts: unlimited, delay: 4s, deadline: 7s",
            "Gives up when the next wait would end after the deadline of 7 s.",
        ),
        (
            "retry: 20, delay: 1s, backoff: exponential, deadline: 10s",
            "Gives up when the next wait would end after the deadline of 10 s, which is before attempt 21.",
        ),
        (
            "preset: standard, deadline: 20s",
            "Gives up after 5 attempts, or when the next wait would end after the deadline of 20 s.",
        ),
    ],
)
def test_ending(policy, ending):
    """BP: the last line says when the policy gives up and counts only the waits between attempts."""
    assert run(policy).output.strip().splitlines()[-1].startswith(ending)


@pytest.mark.parametrize("policy", ["grpc", " grpc "])
def test_connections_have_no_jitter_on_the_first_gap(policy):
    """CB-2: the schedule of gRPC's connection backoff has no jitter in its first gap."""
    done = run(policy)

    assert "grpc: gaps between the starts of attempts" in done.output
    assert cells(done.output)[:2] == [
        ["1", "1 s", "1 s", "1 s", "1 s", "1 s"],
        ["2", "1.6 s", "1.28 s", "1.92 s", "2.6 s", "2.28 s - 2.92 s"],
    ]
    assert len(cells(done.output)) == 12  # the last is at the cap


def test_deadline():
    """BP: no row is shown whose wait can never end before the deadline; the JSON has the deadline, and no totals."""
    policy = "retry: 20, delay: 1s, backoff: exponential, jitter: none, deadline: 10s"
    document = json.loads(run(policy, "--json").stdout)[0]

    assert [row[0] for row in cells(run(policy).output)] == ["1", "2", "3"]
    assert len(cells(run(policy, "--attempts", "5").output)) == 5
    assert (document["deadline"], document["exhausted_after"], document["expected_total"]) == (10.0, None, None)


def test_help_names_all_presets():
    """BP: the help lists all presets."""
    words = " ".join(run("--help").output.split())

    assert f"is a preset ({', '.join(PRESETS)})" in words


def test_attempts():
    """BP: `--attempts` sets the number of rows."""
    assert len(cells(run("standard", "--attempts", "2").output)) == 2
    assert len(cells(run("grpc", "--attempts", "30").output)) == 30


def test_json():
    """BP: `--json` prints the same schedule as JSON."""
    document = json.loads(run("aggressive", "--json").stdout)

    assert [
        (policy["policy"], policy["max_attempts"], policy["exhausted_after"], policy["expected_total"])
        for policy in document
    ] == [("aggressive", 5, [3.75, 11.25], 7.5)]
    assert document[0]["rows"][4] == {
        "number": 5,
        "wait": 8.0,
        "low": 4.0,
        "high": 10.0,
        "total": 15.25,
        "total_low": 7.75,
        "total_high": 21.25,
    }


@pytest.mark.parametrize(
    ("policy", "number", "expected"),
    [
        ("retry: 3, delay: 100ms, backoff: linear, jitter: none", 3, {"wait": 0.3, "total": 0.6}),
        ("grpc", 3, {"wait": 2.56, "low": 2.048, "high": 3.072}),
        ("grpc", 12, {"wait": 120.0, "total_high": 493.643721}),
        ("retry: 1, delay: 0.0000001, jitter: none", 1, {"wait": 1e-07}),
    ],
)
def test_json_is_rounded(policy, number, expected):
    """BP: times in the JSON are rounded to microseconds, and the smallest ones are not rounded to nothing."""
    document = json.loads(run(policy, "--json").stdout)

    row = document[0]["rows"][number - 1]
    assert row["number"] == number
    assert {name: row[name] for name in expected} == expected


def test_file(tmp_path):
    """BP-3: `FILE` shows all policies of a file, and `FILE#NAME` one of them, whatever the file's name."""
    file = tmp_path / "a#b" / "backoff.conf"
    file.parent.mkdir()
    file.write_text(
        '[connection]\ninitial_backoff = 2\n[policies.a]\nretry = 1\ndelay = "3s"\n[methods."*"]\nretry = 0\n'
    )

    whole, one = run(file), run(f"{file}#a")

    titles = ("connection: gaps between the starts", "policies.a: waits before retries", 'methods."*": waits before')
    assert all(any(line.startswith(title) for line in whole.output.splitlines()) for title in titles)
    assert "Gives up after 2 attempts, with 1 wait between them, 3 s in total." in whole.output
    assert cells(one.output) == [["1", "3 s", "3 s", "3 s", "3 s", "3 s"], ["2", "3 s", "3 s", "3 s", "6 s", "6 s"]]


def test_file_with_a_budget(tmp_path):
    """RT-9: a file with a retry budget shows only its policies, since a budget has no waits."""
    file = tmp_path / "backoff.toml"
    file.write_text('[policies.a]\nretry = 1\ndelay = "3s"\n[retry_budget]\nmax_tokens = 10\ntoken_ratio = 0.1\n')

    done = run(str(file), "--json")

    assert done.exit_code == 0
    assert [policy["policy"] for policy in json.loads(done.stdout)] == ["connection", "policies.a"]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("standrad", "policy='standrad': expected the name of a policy; did you mean 'standard'?"),
        ("retry: 5, dely: 1s", "unknown setting 'dely': did you mean 'delay'?"),
        ("none.toml", "none.toml: cannot be read: No such file or directory"),
        ("delay: \x1b[2J", "delay='\\x1b[2J': expected "),
    ],
)
def test_refusal(policy, message):
    """BP-4: an unknown or invalid policy produces one line on standard error, and exit status 2."""
    check_refused(run(policy), f"Error: {message}")


@pytest.mark.parametrize(
    ("policy", "word"),
    [
        ("retry: 2, backoff: exponential", "backoff"),
        ("retry: 2, preset: linear", "preset"),
        ("linear", "policy"),
        ("{file}#a", "policies.a.backoff"),
    ],
)
def test_warning(tmp_path, policy, word):
    """BP-2: `backoff` without `delay` has no effect and causes a warning on standard error."""
    file = tmp_path / "backoff.toml"
    file.write_text('[policies.a]\nretry = 2\nbackoff = "linear"\n')

    done = run(policy.format(file=file))

    assert (done.exit_code, done.stderr) == (0, f"Warning: {word} has no effect without a delay\n")
    assert cells(done.stdout)[0] == ["1", "0 s", "0 s", "0 s", "0 s", "0 s"]


def test_many_attempts():
    """BP: the table of a policy with very many attempts ends at its cap, and the waits are not added up."""
    done = run("max_attempts: 100000000, delay: 1s, backoff: exponential")

    assert len(cells(done.output)) == 6
    assert done.output.strip().endswith("Gives up after 100000000 attempts, with 99999999 waits between them.")
    assert json.loads(run("retry: 100000000, delay: 1s", "--json").stdout)[0]["exhausted_after"] is None


def test_very_short_and_very_long():
    """BP: times that are very short or very long are shown with three significant digits."""
    assert cells(run("retry: 1, delay: 0.1234ms").output)[0][1] == "0.000123 s"
    assert cells(run("retry: 1, delay: 12345678s").output)[0][1] == "1.23e+07 s"
