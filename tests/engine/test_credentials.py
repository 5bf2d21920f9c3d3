"""PO-10: sources of credentials without channels; `tests/both_apis/test_rotation.py` has the channels."""

from __future__ import annotations

import threading
from queue import SimpleQueue

import grpc
import pytest
import trustme

from grpc_backoff import Failure, Stage, tls_files
from grpc_backoff.config.credentials import TLSFiles
from grpc_backoff.engine.credentials import FilesSource, FileWatch, FunctionSource, security_of, time_to_read
from grpc_backoff.grpcio.private import _SINGLE_USE
from tests.sync.service import until

CREDENTIALS = grpc.ssl_channel_credentials()


def outcome(source):
    """Return what a source reads."""
    told = SimpleQueue()
    source.read(told.put)
    return told.get(timeout=20)


def test_what_secures_a_channel():
    """PO-10: grpc's own credentials stay what they are."""
    assert security_of(CREDENTIALS) is CREDENTIALS
    assert isinstance(security_of(tls_files("ca.pem")), FilesSource)
    assert isinstance(security_of(lambda: CREDENTIALS), FunctionSource)
    with pytest.raises(TypeError, match=r"^credentials=None: expected grpc.ChannelCredentials"):
        security_of(None)


def test_identity():
    """PO-10, SH-1: channels with the same files or function share a schedule, whatever they contain."""

    def function():
        return CREDENTIALS

    assert security_of(tls_files("ca.pem")).identity == security_of(tls_files("ca.pem")).identity
    assert security_of(tls_files("ca.pem")).identity != security_of(tls_files("b.pem")).identity
    assert security_of(function).identity == security_of(function).identity


@pytest.mark.parametrize(("limit", "most"), [(20.0, 19.75), (1.0, 0.75), (0.2, 0.1)])
def test_time_to_read(limit, most):
    """PO-10: the wait for credentials ends before the attempt does."""
    assert time_to_read(limit) == most


def test_one_thread():
    """PO-10: reads that overlap share one call of the function, outside of the caller's thread."""
    go_on, threads, told = threading.Event(), [], SimpleQueue()

    def function():
        threads.append(threading.current_thread())
        go_on.wait(20)
        return CREDENTIALS

    source = FunctionSource(function)
    for _ in range(3):
        source.read(told.put)
    go_on.set()
    assert [told.get(timeout=20) for _ in range(3)] == [CREDENTIALS] * 3
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


def test_a_thread_that_cannot_start(monkeypatch):
    """PO-10: if the process has too many threads, an attempt fails, and files are not watched; later ones succeed."""

    def fail(_work, _name):
        raise RuntimeError("can't start new thread")

    source, watch, files = FunctionSource(lambda: CREDENTIALS), FileWatch(), FilesSource(tls_files("ca.pem"))
    with monkeypatch.context() as patch:
        patch.setattr("grpc_backoff.base.threads.start", fail)
        assert outcome(source) == Failure(Stage.CREDENTIALS, "no thread could be started")
        with pytest.raises(RuntimeError, match="can't start new thread"):
            watch.add(files)
    assert outcome(source) is CREDENTIALS
    watch.add(files)
    assert watch._thread is not None
    watch.remove(files)


def closed(_outcome):
    raise RuntimeError("the event loop is closed")


def test_a_reader_whose_loop_is_closed():
    """PO-12: the others still get the outcome."""
    go_on, told = threading.Event(), SimpleQueue()
    source = FunctionSource(lambda: go_on.wait(20) and CREDENTIALS)
    source.read(closed)
    source.read(told.put)
    go_on.set()
    assert told.get(timeout=20) is CREDENTIALS


class Watching:
    """Counts changes, as a channel does."""

    def __init__(self):
        self.changes = 0

    def changed(self):
        self.changes += 1


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(path)
    return path


def test_changes(path):
    """PO-10: each usable change is reported once, also if an attempt has already read it."""
    source, watching = FilesSource(TLSFiles(str(path), None, None, 0.02)), Watching()
    source.watch(watching.changed)
    first = outcome(source)
    trustme.CA().cert_pem.write_to_path(path)
    assert outcome(source) is not first
    until(lambda: watching.changes == 1)
    path.write_bytes(b"half")
    kept = outcome(source)
    assert isinstance(kept, grpc.ChannelCredentials)
    trustme.CA().cert_pem.write_to_path(path)
    until(lambda: watching.changes == 2)
    source.close()


def test_forgotten(path):
    """PO-12: a channel that is garbage-collected is no longer watched for."""
    source, watching = FilesSource(TLSFiles(str(path), None, None, 0.02)), Watching()
    source.watch(watching.changed)
    del watching
    until(lambda: "grpc-backoff-files" not in {thread.name for thread in threading.enumerate()})


def test_no_credentials(tmp_path):
    """PO-10: files that were never usable are a failure of the stage `credentials`."""
    source = FilesSource(TLSFiles(str(tmp_path / "none"), None, None, 60))
    failure = outcome(source)
    assert isinstance(failure, Failure)
    assert failure.stage is Stage.CREDENTIALS


def test_credentials_that_serve_one_channel():
    """CH-8, PO-10: an attempt fails if the function returns credentials that grpcio's core takes only once."""
    made = grpc.ChannelCredentials(_SINGLE_USE(grpc.access_token_call_credentials("a")._credentials))
    refused = outcome(FunctionSource(lambda: made))
    assert isinstance(refused, Failure)
    assert "created after" in refused.reason
