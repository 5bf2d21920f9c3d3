"""`python -m benchmarks.dispersal`: a fleet's attempts as a table, as JSON and as a plot."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from benchmarks.dispersal import simulation
from benchmarks.dispersal.command import dispersal
from tests.cli.running import check_refused

SMALL = ("--clients", "1000", "--outage", "20")


def run(*arguments):
    return CliRunner().invoke(dispersal, [str(each) for each in arguments])


def simulated(*arguments):
    """Return what a simulation writes with `--json`."""
    return json.loads(run(*SMALL, *arguments, "--json").stdout)


def test_table():
    """BP: the table has one row for each distinct policy, in the order given."""
    done = run(*SMALL, "--policy", "standard", "--against", "grpc", "--against", "standard")
    lines = done.stdout.splitlines()

    assert done.exit_code == 0
    assert lines[0].strip() == "1,000 clients, an outage of 20 s, counted in bins of 0.1 s"
    assert [line.split()[0] for line in lines[4:] if line.strip()] == ["standard", "grpc"]


def test_json():
    """BP: the JSON output contains everything that the simulation counts."""
    document = simulated("--seed", "3")
    fleet = document["policies"]["grpc"]

    assert (document["clients"], document["outage"], document["seed"]) == (1000, 20.0, 3)
    assert sum(fleet["attempts_by_time"]) == fleet["attempts"]
    assert fleet["attempts_by_time"][0] == 1000
    assert 0 < fleet["back_after"]["half"] <= fleet["back_after"]["99 %"] <= fleet["back_after"]["all"] < 12
    assert 0 < fleet["peak_per_second"] <= 1000 / fleet["resolution"]


def test_seed():
    """CB-11: the same seed gives the same output, and another seed gives a different one."""
    one, same, other = (run(*SMALL, "--seed", seed).stdout for seed in ("1", "1", "2"))

    assert one == same != other


def test_words_of_connecting():
    """CB-2, CB-3: a policy string may set `jitter_first` and `min_connect_timeout` for connections."""
    words = "preset: grpc, jitter: none, jitter_first: true, min_connect_timeout: 2s"
    document = simulated("--policy", words, "--attempt-lasts", "inf")

    # Attempts start at 0, 2, 4, 6.56, ...: the limit of 2 s is longer than the first two gaps.
    first = [index for index, count in enumerate(document["policies"][words]["attempts_by_time"]) if count][:4]
    assert first == [0, 20, 40, 65]


def test_words_without_preset():
    """BP-2: a policy string has the same defaults as one for calls: no jitter and waits of at most 30 s."""
    words = "delay: 1s, backoff: linear"
    document = simulated("--policy", words)

    assert document["policies"][words]["back_after"] == {"half": 1.0, "99 %": 1.0, "all": 1.0}  # 1+2+3+4+5+6 = 21


def test_file(tmp_path):
    """BP-3: a policy can be a file's `[connection]` section, or one of its named policies."""
    file = tmp_path / "backoff.toml"
    file.write_text("[connection]\ninitial_backoff = 30\njitter = 0\n[policies.late]\ndelay = 40\n")

    document = simulated("--policy", file, "--against", f"{file}#late")

    assert [fleet["back_after"]["all"] for fleet in document["policies"].values()] == [10.0, 20.0]


@pytest.mark.parametrize("name", ["fleet.png", "fleet.svg"])
def test_plot(tmp_path, name):
    """BP: the plot's format follows the file's extension, and repeating the command draws an identical plot."""
    one, two = tmp_path / name, tmp_path / f"again-{name}"
    for file in (one, two):
        done = run(*SMALL, "--against", "standard", "--plot", str(file))
        assert done.exit_code == 0, done.output

    content = one.read_bytes()
    assert content == two.read_bytes()
    assert content.startswith(b"\x89PNG" if name.endswith("png") else b"<?xml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policy", "steep"), "Error: --policy: policy='steep': expected the name of a policy"),
        (("--against", "steep"), "Error: --against: policy='steep': expected the name of a policy"),
        (("--policy", "delay: 0s"), "Error: --policy: delay='0s': expected "),
        (("--against", "none.toml"), "Error: --against: none.toml: cannot be read: No such file"),
        (("--policy", "linear"), "Error: --policy: policy='linear' requires 'delay' as well"),
        (("--plot", "x.gif"), "Error: --plot='x.gif': expected a .png or .svg file"),
        (("--clients", "100000001"), "Error: --clients=100000001: expected a whole number from 1 to 100000000"),
        (("--outage", "inf"), "Error: --outage=inf: expected "),
        (("--outage", "1e9", "--policy", "delay: 1ms, backoff: fixed"), "Error: --resolution=1.0: expected "),
        (("--resolution", "1e-9"), "Error: --resolution=1e-09: expected "),
        (("--attempt-lasts", "nan"), "Error: --attempt-lasts=nan: expected "),
        # Settings for retries are refused, because a simulated client never gives up connecting.
        (("--policy", "retry: 2, delay: 1s"), "Error: --policy: unknown setting 'retry': expected one of: preset, "),
    ],
)
def test_refusal(arguments, message):
    """BP-4: a bad argument produces one line on standard error that names the flag, and exit status 2."""
    check_refused(run("--clients", "10", *arguments), message)


def test_an_outage_of_too_many_attempts(monkeypatch):
    """BP-4: an outage is refused if it would take a client too many attempts."""
    monkeypatch.setattr(simulation, "_MOST_ATTEMPTS", 1000)
    done = run("--clients", "10", "--outage", "1e3", "--policy", "delay: 1ms, backoff: fixed")
    expected = "an outage in which each client makes at most 1000 attempts"
    check_refused(done, f"Error: --outage=1000.0: expected {expected}")


def test_a_picture_that_cannot_be_written():
    """If a plot cannot be written, the command prints one line on standard error and exits with status 1."""
    done = run("--clients", "10", "--plot", "/no/such/dir/x.png")
    check_refused(done, "Error: --plot: cannot write '/no/such/dir/x.png': No such file", status=1)


def test_names_that_are_no_formulas(tmp_path):
    """BP: matplotlib draws a file's name literally, even if it looks like a formula or begins with "_"."""
    for name in ("x$\\frac{$.toml", "_hidden.toml"):
        file = tmp_path / name
        file.write_text("[connection]\njitter = 0\n")
        done = run(*SMALL, "--policy", str(file), "--plot", str(tmp_path / "fleet.PNG"))
        assert done.exit_code == 0, done.output
