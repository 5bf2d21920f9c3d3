"""`python -m benchmarks.dispersal`: shows what a fleet does to a server that goes away and comes back, by policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from benchmarks.dispersal.plot import draw
from benchmarks.dispersal.simulation import Outage, Recovery, simulate
from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.cli.refusal import Refusal, refusing
from grpc_backoff.cli.schedule import file_of
from grpc_backoff.cli.texts import seconds, show_table, write_json
from grpc_backoff.config.file import read_config
from grpc_backoff.config.policy_string import read_string
from grpc_backoff.config.resolving import resolve_connect
from grpc_backoff.config.settings import CONNECTING
from grpc_backoff.config.sources import Source, begin_with
from grpc_backoff.policy.connect import ConnectPolicy
from grpc_backoff.policy.retry import RETRYING

_COLUMNS = ("policy", "attempts", "peak per second", "half back", "99 % back", "all back")
_FLAGS = {
    "Outage.clients": "--clients",
    "Outage.seconds": "--outage",
    "Outage.attempt_lasts": "--attempt-lasts",
    "resolution": "--resolution",
    "seed": "--seed",
}
_BACKOFF = {"preset", "delay", "backoff", "max_delay", "jitter", "multiplier", "max_exponent", "steps"}
_CONNECTING = {"jitter_first", "min_connect_timeout"}
_SETTINGS = (
    *(setting for setting in RETRYING if setting.name in _BACKOFF),
    *(setting for setting in CONNECTING if setting.name in _CONNECTING),
)
"""The settings allowed in a policy string for connections: those for a call policy's backoff, and two more."""
_SHARES = {"half": 0.5, "99 %": 0.99, "all": 1.0}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--clients",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    metavar="N",
    help="Number of clients.",
)
@click.option(
    "--outage",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the server is down.",
)
@click.option(
    "--policy", default="grpc", show_default=True, help="The clients' policy, given as for `grpc-backoff schedule`."
)
@click.option(
    "--against", multiple=True, metavar="POLICY", help="Another policy to compare with the first. Repeatable."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed.")
@click.option(
    "--attempt-lasts",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    metavar="SECONDS",
    help="How long an attempt lasts while the server is down: 0 if it is refused, inf if it gets no answer.",
)
@click.option(
    "--resolution",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Count attempts in bins of this many seconds.  [default: 1, less for a short outage]",
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a plot to a .png or .svg file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with all counts.")
def dispersal(
    clients: int,
    outage: float,
    policy: str,
    against: Sequence[str],
    seed: int,
    attempt_lasts: float,
    resolution: float | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Simulate N clients that lose their server and show the attempts that the server sees until all have reconnected.

    All clients lose the server at the same moment. Each dials immediately, and then again after each gap that its
    policy sets, until it has reconnected. Times are measured from the moment the server comes back; the peak is the
    highest number of attempts per second after that. No client gives up, whatever its policy says about retries.

    A policy is given as for `grpc-backoff schedule`. A policy string may set the backoff, `jitter_first` and
    `min_connect_timeout`, for example "preset: grpc, jitter_first: true".
    """
    if plot is not None and plot.suffix.lower() not in (".png", ".svg"):
        raise Refusal(f"--plot={str(plot)!r}: expected a .png or .svg file")
    with _refusing("--policy"):
        fleets = {policy: connect_policy(policy)}
    with _refusing("--against"):
        fleets |= {name: connect_policy(name) for name in against if name != policy}
    with refusing(), _naming_flags():
        happened = Outage(clients=clients, seconds=outage, attempt_lasts=attempt_lasts)
        done = {name: simulate(fleet, happened, seed=seed, resolution=resolution) for name, fleet in fleets.items()}
    if plot is not None:
        _draw(done, plot)
    if as_json:
        write_json({"clients": clients, "outage": outage, "seed": seed, "policies": _documents(done)})
        return
    show_table(_title(next(iter(done.values()))), _COLUMNS, [_cells(name, recovery) for name, recovery in done.items()])


@contextmanager
def _refusing(flag: str) -> Iterator[None]:
    """Refuse the value of a flag, by its name."""
    try:
        with refusing():
            yield
    except Refusal as refusal:
        raise Refusal(f"{flag}: {refusal.message}") from refusal


@contextmanager
def _naming_flags() -> Iterator[None]:
    """Make errors name a value by its flag instead of the library's name for it."""
    try:
        yield
    except OptionError as error:
        raise OptionError(
            _FLAGS.get(error.key, error.key), error.value, error.allowed, error.meant, error.problem
        ) from error


def _draw(done: dict[str, Recovery], file: Path) -> None:
    try:
        draw(done, file)
    except OSError as error:
        raise Refusal(f"--plot: cannot write {str(file)!r}: {error.strerror or error}", status=1) from error


def _title(recovery: Recovery) -> str:
    outage = recovery.outage
    counted = f"counted in bins of {seconds(recovery.resolution)}"
    return f"{outage.clients:,} clients, an outage of {seconds(outage.seconds)}, {counted}"


def _cells(name: str, recovery: Recovery) -> tuple[str, ...]:
    back = (seconds(recovery.until(share)) for share in _SHARES.values())
    return (name, f"{recovery.total:,}", f"{recovery.peak:,.0f}", *back)


def _documents(done: dict[str, Recovery]) -> dict[str, object]:
    return {
        name: {
            "attempts": recovery.total,
            "peak_per_second": recovery.peak,
            "back_after": {word: recovery.until(share) for word, share in _SHARES.items()},
            "resolution": recovery.resolution,
            "attempts_by_time": recovery.attempts.tolist(),
        }
        for name, recovery in done.items()
    }


def connect_policy(text: str) -> ConnectPolicy:
    """Return the connect policy whose backoff a text describes.

    Raises:
        OptionError, ConfigError: the text names no policy, or has an invalid value.
    """
    path, policy = file_of(text)
    if path:
        config = read_config(path)
        return _connecting(policy, config.policies) if policy else config.connect_policy().policy
    if ":" in text or "=" in text:
        return _connecting(text, {text: read_string(text, _SETTINGS)})
    return _connecting(text, {})


def _connecting(name: str, policies: Mapping[str, Source]) -> ConnectPolicy:
    return resolve_connect([begin_with(name)], policies)[0].policy
