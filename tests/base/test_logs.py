"""This library's loggers, beside what a program has added to `logging`."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from grpc_backoff.base.logs import Log

LOG = Log("grpc_backoff.tests")


@pytest.fixture(params=["handler", "filter", "factory"])
def _breaking(request):
    """Add something to `logging` that raises."""
    logger, before = LOG.logger, logging.getLogRecordFactory()
    handler = logging.Handler()
    handler.emit = refuse
    logger.propagate = False  # pytest's own handler raises what it cannot write
    if request.param == "handler":
        logger.addHandler(handler)
    elif request.param == "filter":
        logger.addFilter(refuse)
    else:
        logging.setLogRecordFactory(lambda *_args, **_named: refuse(None))
    yield
    logging.setLogRecordFactory(before)
    logger.removeFilter(refuse)
    logger.removeHandler(handler)
    logger.propagate = True


def refuse(_record):
    raise OSError("the disk is full")


@pytest.mark.usefixtures("_breaking")
@pytest.mark.parametrize("shown", [True, False])
def test_what_a_program_has_added_raises(monkeypatch, capsys, shown):
    """CH-11: it is shown as `logging` shows what its handlers cannot write, or not at all, and reaches no caller."""
    monkeypatch.setattr(logging, "raiseExceptions", shown)
    LOG.warning("a line")
    LOG.error("an error", exc_info=ValueError())
    assert capsys.readouterr().err.count("OSError: the disk is full") == 2 * shown


@pytest.mark.parametrize("broken", ["closed", "gone"])
def test_stderr_is_closed(monkeypatch, capsys, broken):
    """CH-11: where stderr is closed, or there is none, as in daemons, what cannot be written reaches no caller."""
    stderr = io.StringIO() if broken == "closed" else None
    handler = logging.StreamHandler(io.StringIO())
    handler.stream.close()
    monkeypatch.setattr(LOG.logger, "propagate", False)
    monkeypatch.setattr(LOG.logger, "handlers", [handler])
    if stderr is not None:
        stderr.close()
    monkeypatch.setattr(sys, "stderr", stderr)
    LOG.warning("a line")
    monkeypatch.setattr(handler, "emit", refuse)
    LOG.error("an error", exc_info=ValueError())
    assert capsys.readouterr().out == ""


def test_where_a_line_comes_from(caplog):
    """A record names the caller, its own arguments and the attributes that are given."""
    LOG.error("%d errors", 2, extra={"delay": 1.0})
    (record,) = caplog.records
    assert (record.funcName, record.getMessage(), record.delay) == ("test_where_a_line_comes_from", "2 errors", 1.0)
