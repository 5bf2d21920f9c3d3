"""A real PostgreSQL server, run by an unprivileged user on a Unix socket in a temporary directory."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

_PLACES = "/usr/lib/postgresql/*/bin"
_USERS = ("postgres", "nobody")


def binaries():
    """Return the directory of the server's programs, or None if it is not installed."""
    found = shutil.which("initdb")
    if found and (Path(found).resolve().parent / "pg_ctl").exists():
        return Path(found).resolve().parent
    places = sorted(Path("/").glob(_PLACES.lstrip("/")), key=lambda path: int(path.parent.name.split(".")[0]))
    return next((place for place in reversed(places) if (place / "initdb").exists()), None)


class Server:
    """A PostgreSQL server with its own cluster; `start` and `stop` may be called repeatedly."""

    def __init__(self, *, durable=False, primary=None):
        self._programs = binaries()
        self.directory = Path(tempfile.mkdtemp(prefix="grpc-backoff-pg-"))
        self._data = self.directory / "data"
        self._as = []
        if os.getuid() == 0:  # the server refuses to run as root
            user = next(pwd.getpwnam(name) for name in _USERS if _is_there(name))
            os.chown(self.directory, user.pw_uid, user.pw_gid)
            # Do not use Popen's `user`, which makes Popen fork: grpc's fork handlers have crashed in such a child.
            self._as = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]
        self.directory.chmod(0o755)
        self._durable = durable
        self._process = None
        if primary is None:
            self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C")
        else:  # a hot standby
            source = ("-h", primary.directory, "-U", "postgres")
            self._run("pg_basebackup", *source, "-D", self._data, "-R", "-N", "-c", "fast")
        self._databases = 0
        self._free = []

    def _run(self, program, *arguments):
        subprocess.run(
            [*self._as, self._programs / program, *arguments], check=True, stdout=subprocess.DEVNULL, cwd="/"
        )

    @property
    def pid(self):
        """The id of the server's first process."""
        return self._process.pid

    def url(self, database="postgres", user="postgres"):
        return f"postgresql://{user}@/{database}?host={self.directory}"

    def start(self):
        settings = {"listen_addresses": "", "unix_socket_directories": self.directory, "max_connections": 400}
        settings |= {} if self._durable else {"fsync": "off", "synchronous_commit": "on", "full_page_writes": "off"}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        log = (self.directory / "log").open("ab")
        self._process = subprocess.Popen(
            [*self._as, self._programs / "postgres", "-D", self._data, *options], stdout=log, stderr=log, cwd="/"
        )
        log.close()
        end = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url()).close()
            except psycopg.OperationalError:
                ended = self._process.poll()
                assert ended is None, (ended, (self.directory / "log").read_text())
                assert time.monotonic() < end, (self.directory / "log").read_text()
                time.sleep(0.05)
            else:
                return

    def stop(self, how=signal.SIGINT):
        """Stop the server: SIGINT requests a fast shutdown, SIGQUIT an immediate one."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def database(self):
        """Create an empty database and return its URL."""
        self._databases += 1
        name = f"ledger{self._databases}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    @contextlib.contextmanager
    def lending(self):
        """Yield the URL of an empty database, emptied afterwards and lent again, because creating one is slow."""
        url = self._free.pop() if self._free else self.database()
        yield url
        with psycopg.connect(url, autocommit=True) as connection:
            others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            connection.execute(f"SELECT pg_terminate_backend(pid) {others}")
            connection.execute("DROP SCHEMA IF EXISTS grpc_backoff CASCADE")
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        self._free.append(url)

    def execute(self, statement, database="postgres"):
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement)

    def close(self):
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)


@contextlib.contextmanager
def running(**how):
    """Run a server until the block ends."""
    server = Server(**how)
    try:
        server.start()
        yield server
    finally:
        server.close()


def _is_there(name):
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
