"""`grpc-backoff config`: the effective values in a file, and where each came from."""

from __future__ import annotations

import json

import pytest

from tests.cli.running import check_refused, invoke

FILE = """
[connection]
max_backoff = "30s"
idle_timeout = inf

[targets."*.example:443"]
preset = "careful"
reconnect = "eager"

[policies.careful]
preset = "standard"
max_delay = 10
steps = [1, 2]
backoff = "steps"

[methods."shop.Orders"]
preset = "contention"
retry = 2
codes = ["ABORTED"]

[methods."*"]
max_attempts = "unlimited"
delay = 1
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "backoff.toml"
    path.write_text(FILE)
    return path


def run(command, *arguments):
    return invoke("config", command, "backoff.toml", *arguments)


def read(command, *arguments):
    """Return what the command writes with `--json`."""
    return json.loads(run(command, *arguments, "--json").stdout)


def values(document, section):
    return {name: (entry["value"], entry["from"]) for name, entry in document[section].items()}


def test_times_have_a_unit(file):
    """LV-1, PO-7: the table shows every time with its unit, those of a pool as well, and no other number."""
    file.write_text(
        "[connection]\nquiet_after = 30\nresolve_every = 10\n[retry_budget]\nmax_tokens = 9\ntoken_ratio = 0.1\n"
    )
    shown = {words[0]: words[1:3] for line in run("check").stdout.splitlines() if len(words := line.split()) > 2}

    assert [shown[name] for name in ("quiet_after", "resolve_every", "answer_within")] == [
        ["30", "s"],
        ["10", "s"],
        ["5", "s"],
    ]
    assert [shown[name] for name in ("max_tokens", "multiplier")] == [["9.0", "file"], ["1.6", "preset"]]


def test_check_says_what_holds_and_why(file):
    """BP-3: `config check` prints every effective value and where it came from."""
    document = read("check")

    assert list(document) == [
        "connection",
        'targets."*.example:443"',
        "policies.careful",
        'methods."shop.Orders"',
        'methods."*"',
    ]
    assert values(document, "connection") == {
        "backoff": ("exponential", "preset grpc"),
        "initial_backoff": (1.0, "preset grpc"),
        "multiplier": (1.6, "preset grpc"),
        "max_backoff": (30.0, "file backoff.toml: connection.max_backoff"),
        "jitter": ("proportional(0.2)", "preset grpc"),
        "min_connect_timeout": (20.0, "preset grpc"),
        "jitter_first": (False, "preset grpc"),
        "stable_after": (0.0, "preset grpc"),
        "reconnect": ("lazy", "preset grpc"),
        "idle_timeout": ("inf", "file backoff.toml: connection.idle_timeout"),
        "max_connections": (1, "preset grpc"),
        "streams_per_connection": (100, "preset grpc"),
        "resolve_every": (0.0, "preset grpc"),
        "min_resolve_interval": (30.0, "preset grpc"),
        "quiet_after": (0.0, "preset grpc"),
        "answer_within": (5.0, "preset grpc"),
        "watch_network": (False, "preset grpc"),
    }
    assert values(document, 'targets."*.example:443"')["reconnect"] == (
        "eager",
        'file backoff.toml: targets."*.example:443".reconnect',
    )
    assert values(document, "policies.careful") == {
        "backoff": ("steps", "file backoff.toml: policies.careful.backoff"),
        "steps": ([1.0, 2.0], "file backoff.toml: policies.careful.steps"),
        "multiplier": (2.0, "preset standard"),
        "max_delay": (10.0, "file backoff.toml: policies.careful.max_delay"),
        "jitter": ("scaled(0.5, 1.5)", "preset standard"),
        "max_attempts": (5, "preset standard"),
        "codes": (["RESOURCE_EXHAUSTED", "UNAVAILABLE"], "preset standard"),
        "timeout": (None, "preset standard"),
        "deadline": (None, "preset standard"),
        "server_delay_jitter": (5.0, "preset standard"),
        "max_server_delay": (None, "preset standard"),
        "never_ran_only": (False, "preset standard"),
    }
    assert values(document, 'methods."shop.Orders"')["max_attempts"] == (
        3,
        'file backoff.toml: methods."shop.Orders".retry',
    )


def test_check_as_a_table(file):
    """BP-3: without `--json`, `config check` prints the same values as a table, and says that the file is valid."""
    done = run("check")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]

    assert done.exit_code == 0
    assert "max_backoff 30 s file backoff.toml: connection.max_backoff" in lines
    assert "idle_timeout never file backoff.toml: connection.idle_timeout" in lines
    assert "jitter_first false preset grpc" in lines
    assert "steps 1.0 2.0 file backoff.toml: policies.careful.steps" in lines
    assert 'max_attempts unlimited file backoff.toml: methods."*".max_attempts' in lines
    assert "timeout none preset fixed" in lines
    assert lines[-1] == "backoff.toml is valid."


@pytest.mark.parametrize(
    ("method", "attempts"), [("shop.Orders/Place", 3), ("/shop.Orders/Place", 3), ("other.Service/Call", None)]
)
def test_show_method(file, method, attempts):
    """BP-2: `config show --method` shows only the policy of the most specific table that matches."""
    document = read("show", "--method", method)

    assert list(document) == [f"calls of {method}"]
    assert document[f"calls of {method}"]["max_attempts"]["value"] == attempts


def test_show_target(file):
    """BP-3: `config show --target` shows the settings for connections to that target."""
    document = read("show", "--target", "a.example:443")

    assert list(document) == ["connections to a.example:443"]
    assert document["connections to a.example:443"]["reconnect"]["value"] == "eager"
    plain = read("show")
    assert plain["connections to any target"]["reconnect"]["value"] == "lazy"


def test_show_several(file):
    """BP-3, LG-14: `config show` accepts a target, a method and `--ledger` together."""
    document = read("show", "--target", "x", "--method", "shop.Orders/Place", "--ledger")

    assert list(document) == ["ledger", "connections to x", "calls of shop.Orders/Place"]
    assert list(read("show", "--ledger")) == ["ledger"]


def test_show_method_without_table(file):
    """RT-1: `config show` says that a method without a matching table is not retried."""
    file.write_text('[methods."a.B"]\nretry = 1\n')

    done = run("show", "--method", "c.D/E")

    assert done.exit_code == 0
    assert done.stdout.strip() == "calls of c.D/E: no table in the file matches, so the default applies: no retries."


@pytest.mark.parametrize(("command", "status"), [("check", 1), ("show", 2)])
def test_bad_file(file, command, status):
    """BP-4: a bad file produces one line on standard error; the exit status is 1 for `check` and 2 for `show`."""
    file.write_text("[connection]\njitter = 7\n")

    check_refused(run(command), "Error: backoff.toml: connection.jitter=7: expected ", status=status)


BUDGET = "\n[retry_budget]\nmax_tokens = 10\ntoken_ratio = 0.1\n"
OF_BUDGET = {
    "max_tokens": (10.0, "file backoff.toml: retry_budget.max_tokens"),
    "token_ratio": (0.1, "file backoff.toml: retry_budget.token_ratio"),
}


@pytest.fixture
def with_budget(file):
    file.write_text(FILE + BUDGET)
    return file


def test_check_shows_the_budget(with_budget):
    """RT-9: `config check` shows the retry budget and where its numbers came from."""
    document = read("check")

    assert list(document)[-1] == "retry_budget"
    assert values(document, "retry_budget") == OF_BUDGET
    lines = [" ".join(line.split()) for line in run("check").stdout.splitlines()]
    assert "retry_budget" in lines
    assert "max_tokens 10.0 file backoff.toml: retry_budget.max_tokens" in lines
    assert "token_ratio 0.1 file backoff.toml: retry_budget.token_ratio" in lines


@pytest.mark.parametrize(
    ("arguments", "whose"), [((), "each target"), (("--target", "a.example:443"), "a.example:443")]
)
def test_show_budget(with_budget, arguments, whose):
    """RT-9: `config show --method` also shows the retry budget that limits the method's retries."""
    document = read("show", "--method", "shop.Orders/Place", *arguments)

    assert list(document)[-2:] == ["calls of shop.Orders/Place", f"retry budget of {whose}"]
    assert values(document, f"retry budget of {whose}") == OF_BUDGET


def test_show_no_budget(with_budget):
    """RT-9: `config show` omits the retry budget if the method is not retried or no method is given."""
    with_budget.write_text('[methods."a.B"]\nretry = 1\n' + BUDGET)

    assert "budget" not in run("show", "--method", "c.D/E").stdout
    assert "budget" not in run("show", "--target", "x").stdout
    assert "budget" not in run("show").stdout


def test_warning(file):
    """BP-2: a setting without effect causes a warning on standard error, and the file is still valid."""
    file.write_text('[policies.a]\nbackoff = "linear"\n[methods."a.B"]\npreset = "a"\nretry = 2\n')

    done = run("check")

    assert done.exit_code == 0
    assert done.stderr == "Warning: backoff.toml: policies.a.backoff has no effect without a delay\n"


def test_check_warns_of_a_lost_deadline(file):
    """BP-3: a method's table inherits nothing, so `config check` warns if it hides a deadline, and only then."""
    service, method = (
        '[methods."shop.Orders"]\nretry = 1\ndeadline = "30s"\n',
        '[methods."shop.Orders/Place"]\nretry = 0\n',
    )
    told = (
        'Warning: backoff.toml: methods."shop.Orders/Place" has no deadline: '
        'it inherits nothing from methods."shop.Orders", which has one\n'
    )

    file.write_text(service + method)
    lost = run("check")
    file.write_text(service + method + 'deadline = "30s"\n')
    kept = run("check")

    assert (lost.exit_code, lost.stderr) == (0, told)
    assert (kept.exit_code, kept.stderr) == (0, "")
