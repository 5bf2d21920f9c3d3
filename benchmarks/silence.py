"""Measures how soon a peer that falls silent is noticed: `python -m benchmarks.silence [WHAT]`; needs root, on Linux.

A client, a router and two servers have a network namespace each, so TCP itself gets no answer. Prints a line of JSON
for each subject: both APIs, of plain grpc without and with keepalive (30 s), and of this library. All of them have an
open stream without a deadline, and make calls of 1 s one after the other. The figures are the seconds until the stream
has failed, and until a call was answered; null if that did not happen `--within` the seconds given. Without WHAT, all
run at the same time.

`all`      every packet of the existing connections is lost; new ones work
`up`       what the client sends on the existing connections is lost
`down`     what the server sends on them is lost
`address`  the client loses the address of its connections; it has another one
`frozen`   the server is stopped by SIGSTOP; the router leads new connections to another server
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from benchmarks.holding import holding
from benchmarks.load import tell, together

_INSIDE = "BENCHMARK_NAMESPACE"
_SERVICE = "10.77.9.9"
_KEEPALIVE = [("grpc.keepalive_time_ms", 30_000)]


class _Net:
    """The network: the client's namespace, which is this process's, the router's, and those of two servers."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.router, *servers = (self._namespace(stack) for _ in range(3))
        self.inside = [_in(server) for server in servers]
        _ip("link set lo up")
        self._link(None, "10.77.0.2/24", self.router, "10.77.0.1/24")
        _ip("address add 10.77.0.3/24 dev to0")
        with open("/proc/sys/net/ipv4/conf/to0/promote_secondaries", "w") as setting:  # noqa: PTH123 - it is no file
            setting.write("1")
        _ip("route add default via 10.77.0.1")
        for number, server in enumerate(servers, 1):
            self._link(self.router, f"10.77.{number}.1/24", server, f"10.77.{number}.2/24", number)
            _ip("link set lo up", server)
            _ip(f"address add {_SERVICE}/32 dev lo", server)
            _ip(f"route add default via 10.77.{number}.1", server)
            _ip(f"route add {_SERVICE} via 10.77.{number}.2 table {100 + number}", self.router)
        _ip(f"route add {_SERVICE} via 10.77.1.2", self.router)
        _run(*_in(self.router), "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")

    def _namespace(self, stack: contextlib.ExitStack) -> int:
        """Make a namespace; return the process that keeps it."""
        kept = stack.enter_context(
            subprocess.Popen(["unshare", "--net", "sh", "-c", "echo && exec sleep 3600"], stdout=subprocess.PIPE)
        )
        stack.callback(kept.kill)
        assert kept.stdout is not None
        kept.stdout.readline()
        return kept.pid

    @staticmethod
    def _link(one: int | None, address: str, other: int, others: str, number: int = 0) -> None:
        _ip(f"link add to{number} type veth peer name from{number} netns {other}", one)
        for namespace, name, held in ((one, f"to{number}", address), (other, f"from{number}", others)):
            _ip(f"address add {held} dev {name}", namespace)
            _ip(f"link set {name} up", namespace)

    def lead(self, how: str) -> None:
        """Do something else with the packets of the existing connections: `sport` for those of the client."""
        told = _run("ss", "--tcp", "--numeric", "--no-header", "state", "established", "dst", _SERVICE)
        for line in told.splitlines():
            port = line.split()[2].rpartition(":")[2]
            _ip(f"rule add ipproto tcp {how.format(port)}", self.router)

    def fail(self, what: str, server: subprocess.Popen[str]) -> None:
        """Make the existing connections silent."""
        if what in ("all", "up"):
            self.lead("sport {} blackhole")
        if what in ("all", "down"):
            self.lead("dport {} blackhole")
        if what == "address":
            _ip("address delete 10.77.0.2/24 dev to0")
            _ip("route replace default via 10.77.0.1")
        if what == "frozen":
            self.lead("sport {} lookup 101")
            _ip(f"route replace {_SERVICE} via 10.77.2.2", self.router)
            server.send_signal(signal.SIGSTOP)


def _in(namespace: int) -> list[str]:
    return ["nsenter", "--net", "--target", str(namespace)]


def _ip(command: str, namespace: int | None = None) -> None:
    _run(*([] if namespace is None else _in(namespace)), "ip", *command.split())


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _measure(what: str, within: float, quiet_after: float, answer_within: float, *, ours: bool) -> None:
    quiet = [("grpc_backoff.quiet_after", quiet_after), ("grpc_backoff.answer_within", answer_within)]
    with contextlib.ExitStack() as stack:
        apis = together(stack, *(["ours"] if ours else ["plain", "plain", "ours"]))
        net = _Net(stack)
        (port, server), (_, _) = (stack.enter_context(holding(f"{_SERVICE}:50051", inside)) for inside in net.inside)
        stack.callback(server.send_signal, signal.SIGCONT)
        running = list[tuple[Any, list[Any], Any, dict[str, float]]]()
        for number, api in enumerate(apis):
            options = quiet if api.ours else [("grpc.use_local_subchannel_pool", 1), *_KEEPALIVE * (number > 1)]
            channel = stack.enter_context(api.channel(f"{_SERVICE}:{port}", options))
            channel.ready()
            stream = channel.begin("Down")
            assert stream.read() == "a"
            running.append((api, options, (channel, stream), {}))
        net.fail(what, server)
        silent = time.monotonic()
        works = [
            threading.Thread(target=work, args=(*both, figures, silent, within))
            for _, _, both, figures in running
            for work in (_wait, _call)
        ]
        for work in works:
            work.start()
        for work in works:
            work.join()
        for api, options, _, figures in running:
            keepalive = {} if api.ours else {"keepalive": 30 * (_KEEPALIVE[0] in options)}
            told = {name: figures.get(name) for name in ("stream_failed", "answered")}
            tell("silence", what, api, **keepalive, **told)
        server.send_signal(signal.SIGCONT)


def _wait(_channel: Any, stream: Any, figures: dict[str, float], silent: float, within: float) -> None:
    """Wait until the stream has failed."""
    while time.monotonic() < silent + within:
        if stream.done():
            figures["stream_failed"] = round(time.monotonic() - silent, 2)
            return
        time.sleep(0.01)
    stream.cancel()


def _call(channel: Any, _stream: Any, figures: dict[str, float], silent: float, within: float) -> None:
    """Make calls until one is answered."""
    while time.monotonic() < silent + within:
        if channel.begin(timeout=1, wait_for_ready=True).outcome().error is None:
            figures["answered"] = round(time.monotonic() - silent, 2)
            return


_WHAT = ("all", "up", "down", "address", "frozen")


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.silence", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=_WHAT, nargs="?")
    parser.add_argument("--within", type=float, default=100.0, help="how many seconds to wait; default: %(default)s")
    parser.add_argument("--quiet-after", type=float, default=1.0, help="default: %(default)s")
    parser.add_argument("--answer-within", type=float, default=2.0, help="default: %(default)s")
    parser.add_argument("--ours", action="store_true", help="leave plain grpc out")
    given = parser.parse_args()
    if given.what is not None and _INSIDE in os.environ:
        _measure(given.what, given.within, given.quiet_after, given.answer_within, ours=given.ours)
        return
    command, inside = ["unshare", "--net", sys.executable, "-m", "benchmarks.silence"], {**os.environ, _INSIDE: "1"}
    chosen = _WHAT if given.what is None else (given.what,)
    mine = sys.argv[1:] if given.what is None else [each for each in sys.argv[1:] if each != given.what]
    running = [subprocess.Popen([*command, what, *mine], env=inside) for what in chosen]
    sys.exit(max(abs(each.wait()) for each in running))


if __name__ == "__main__":
    main()
