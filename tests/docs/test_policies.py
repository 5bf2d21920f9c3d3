"""The page about policies: its code runs, its file is valid, and its tables match the code."""

from __future__ import annotations

import re

import pytest

import grpc_backoff
from grpc_backoff import parse_policy, read_config
from grpc_backoff.config.settings import CONNECTING
from grpc_backoff.policy.hedging import HEDGING
from grpc_backoff.policy.jitter import JITTERS, parse_jitter
from grpc_backoff.policy.presets import PRESETS, RETRY_PRESETS
from grpc_backoff.policy.retry import RETRYING
from grpc_backoff.policy.strategy import STRATEGIES
from tests.docs.pages import block, read

PAGE = read("policies.md")


def section(title):
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(title):
    """Return the cells of a section's table, without its header."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def names(cell):
    return re.findall(r"`([^`]+)`", cell)


def test_code_runs():
    """BP: the code on the page runs unchanged."""
    exec(compile(block("policies.md", "import"), "policies.md", "exec"), {})


def test_file_is_good(tmp_path):
    """BP-3: the file on the page is valid, and means what its comments say."""
    file = tmp_path / "backoff.toml"
    file.write_text(block("policies.md", "", "toml"))

    config = read_config(file)

    assert config.connect_policy("a.example:443").policy.backoff.jitter == RETRY_PRESETS["standard"].backoff.jitter
    assert config.retry_policy("shop.Orders/List").policy.max_attempts == 3
    assert config.retry_policy("shop.Orders/Place").policy.max_attempts == 1
    assert config.retry_policy("other.Service/Call") is None


def test_strategies_and_jitters():
    """BP: the tables list every strategy and jitter, and each jitter's text means the class shown next to it."""
    assert [names(row[0])[0] for row in rows("Strategies")] == [strategy.name for strategy in STRATEGIES]
    numbers = {"f": "0.25", "low": "0.5", "high": "1.5"}
    shown = set()
    for written, made, _ in rows("Jitter"):
        with_numbers = [
            re.sub(r"\b(f|low|high)\b", lambda found: numbers[found[1]], names(cell)[0]) for cell in (written, made)
        ]
        jitter = parse_jitter("jitter", with_numbers[0])
        assert jitter == eval(with_numbers[1], {name: getattr(grpc_backoff, name) for name in grpc_backoff.__all__})
        shown.add(type(jitter))
    assert shown == set(JITTERS)


@pytest.mark.parametrize("row", rows("Presets"), ids=lambda row: row[0])
def test_presets(row):
    """BP-1: each row of the presets table, written as a policy string, is equal to the preset."""
    name, strategy, delay, multiplier, cap, jitter, attempts = row
    if len(names(name)) > 1:
        assert all(PRESETS[each]["max_delay"] == 30.0 for each in names(name))
        return
    kind, *more = re.split(r",? ", strategy, maxsplit=1)
    words = [f"backoff: {kind}", f"max_delay: {cap.replace(' ', '')}", f"jitter: {jitter}", f"multiplier: {multiplier}"]
    words += (
        [f"delay: {delay.replace(' ', '')}"] if delay else [f"steps: {more[0].replace(',', '').removesuffix(' s')}"]
    )
    words += [f"max_exponent: {more[0].split()[-1]}"] if "exponent" in "".join(more) else []
    attempts, *whole = attempts.split(", in ")
    words += [f"max_attempts: {attempts}"] + [
        f"deadline: {time.replace(' days', 'd').replace(' ', '')}" for time in whole
    ]

    policy, preset = parse_policy(", ".join(words)), RETRY_PRESETS[names(name)[0]]

    assert (policy.backoff, policy.max_attempts, policy.deadline) == (
        preset.backoff,
        preset.max_attempts,
        preset.deadline,
    )


def test_presets_are_all_there():
    """BP: the table lists every preset."""
    assert [name for row in rows("Presets") for name in names(row[0])] == list(PRESETS)


def test_words_are_all_there():
    """BP-2: the page lists every setting of policy strings, and every setting of connections."""
    assert {word for row in rows("Policy strings") for word in names(row[0])} == {
        setting.name for setting in (*RETRYING, *HEDGING)
    }
    keys = section("The file").partition("The keys of")[2].partition("The keys of")[0]
    assert {name for name in names(keys) if "[" not in name} == {setting.name for setting in CONNECTING}
