"""`make interop-servers`: builds the servers that this machine can build, tests them, and writes their tables."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from grpc_judge.runner.build import REQUIRE_PEERS, build_all, peers_required
from grpc_judge.runner.program import choose
from grpc_judge.runner.until_told import one_line_for, run_to_the_end
from tests.interop_suite.servers import page
from tests.interop_suite.servers.processes import SERVERS

HERE = Path(__file__).parent


@click.command()
@click.argument("names", nargs=-1)
@click.option("--report", type=click.Path(path_type=Path), help="Keep the figures in this file.")
def main(names, report):
    """Build the servers that this machine can build, and say which ones it skips and why; test them.

    With NAMES, only these. With all, the tables in `docs/conformance/servers.md` are written. A server that is skipped
    is an error only if the environment has GRPC_BACKOFF_REQUIRE_PEERS=1. The exit status is that of the tests.
    """
    with one_line_for(ValueError):
        servers = choose([server for server in SERVERS if not server.proxy], "NAMES", names)
    built = run_to_the_end(build_all(servers, click.echo))
    skipped = [str(each) for each in built if each.missing]
    if skipped and peers_required():
        raise click.ClickException(f"{len(skipped)} servers are missing, and {REQUIRE_PEERS}=1 requires all")
    if len(skipped) == len(built):
        raise click.ClickException("no server can be tested")
    # Each server's name begins with a word of its own, which pytest's expressions can have.
    words = " or ".join(each.program.name.partition(" ")[0] for each in built if not each.missing)
    with tempfile.TemporaryDirectory() as folder:
        figures = report or Path(folder) / "figures.xml"
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-n", "2", "--dist", "load"),
                *(
                    "-k",
                    words,
                    "--junitxml",
                    figures,
                    "-o",
                    "junit_family=xunit1",
                    HERE / "test_servers.py",
                    HERE / "test_hedging.py",
                ),
            ],
            env={**os.environ, REQUIRE_PEERS: "1"},
            check=False,
        )
        if not names:
            page.write(figures, skipped)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main(prog_name="python -m tests.interop_suite.servers")
