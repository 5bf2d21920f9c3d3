"""The demo: one complete run, and its judge on runs that went wrong."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
from rich.console import Console

from examples import demo
from examples.demo.report import check, print_report
from examples.demo.script import RECOVERIES, Run, Scene, SceneRecord
from examples.demo.traffic import CallRecord, Worker

QUICK = Worker(name="quick", wait_for_ready=False)
WAITING = Worker(name="wait-for-ready", wait_for_ready=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "plain"), [([], "grpc.aio"), (["--threads"], "grpc, ")], ids=["asyncio", "threads"]
)
def test_demo_keeps_every_promise(arguments, plain):
    """CH-3, CH-6, CH-7, CB-7, TH-3: the demo shows all scenes and passes all checks in 40 s, without error output."""
    command = [sys.executable, "-W", "always::ResourceWarning", "-m", "examples.demo", *arguments]
    began = time.monotonic()
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=90)  # as `make demo` does
    assert time.monotonic() - began < 40
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert f"with plain {plain}" in done.stdout
    assert "FAILED" not in done.stdout
    assert done.stdout.count("\nok ") == 7
    for scene in Scene:
        assert f"== {scene.value}" in done.stdout


def test_beside_a_wheel(tmp_path):
    """If h2 is not installed, the demo, run as in `make wheel`, prints one line that says what to install."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['h2'] = None")
    examples = Path(demo.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(examples.parent)])}
    command = [sys.executable, "-m", "demo"]
    done = subprocess.run(
        command, check=False, cwd=examples, env=environment, capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "grpc-backoff: the demo needs the extra 'cli': pip install 'grpc-backoff[cli]', or '.[cli]' in a checkout\n"
    )


# The judge. Scene n lasts from second n to second n + 1, counted from 0.


def call(scene, *, worker=QUICK, ended=None, code=None):
    began = list(Scene).index(scene) + 0.5
    return CallRecord(worker=worker, began=began, ended=began + 0.1 if ended is None else ended, deadline=15, code=code)


GOOD = (
    call(Scene.REFUSED, code=grpc.StatusCode.UNAVAILABLE),
    call(Scene.REFUSED, worker=WAITING, ended=3.1),
    call(Scene.HEALTHY),
    call(Scene.KILLED, worker=WAITING, ended=5.1),
    call(Scene.BACK),
    call(Scene.RESTART),
)


def run(*more, made=None, twice=0, hanging_up=5, recovered_in=0.1):
    records = (*GOOD, *more)
    scenes = [
        SceneRecord(
            scene=scene,
            began=float(index),
            ended=index + 1.0,
            connections=hanging_up if scene is Scene.HANGING_UP else 1,
            recovered_in=recovered_in,
        )
        for index, scene in enumerate(Scene)
    ]
    made = len(records) if made is None else made
    return Run(made=made, records=records, twice=twice, connections=9, scenes=scenes)


def failing(judged):
    return [each.claim for each in check(judged) if not each.holds]


def test_judge_accepts_a_good_run():
    """A run in which everything went right fails no check."""
    assert failing(run()) == []


@pytest.mark.parametrize(
    ("judged", "claim"),
    [
        (run(made=99), "lost"),
        (run(twice=1), "twice"),
        (run(hanging_up=8), "hangs up"),
        (run(call(Scene.SILENT, worker=WAITING, code=grpc.StatusCode.DEADLINE_EXCEEDED)), "outlasted"),
        (run(call(Scene.KILLED, worker=WAITING, ended=5.2, code=grpc.StatusCode.UNAVAILABLE)), "outlasted"),
        (run(call(Scene.RESTART, code=grpc.StatusCode.CANCELLED)), "rolling restart"),
        (run(call(Scene.BACK, ended=6.5, code=grpc.StatusCode.UNAVAILABLE)), "rolling restart"),
    ],
)
def test_judge_finds_what_went_wrong(judged, claim):
    """CH-3, CH-6, CH-7, CB-7: each broken promise fails its own check and no other."""
    [found] = failing(judged)
    assert claim in found


def test_judge_wants_recovery():
    """A healthy scene without an answer fails its own check."""
    assert len(failing(run(recovered_in=None))) == 2


def test_the_lines_fit_a_terminal_of_80_columns():
    """The recording has 80 columns, and no line of the demo's scenes and checks is wrapped there."""
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True)
    good = run(recovered_in=12.3)
    print_report(console, ("grpc_backoff.aio", "grpc.aio"), good, good, check(good))
    lines = console.export_text().splitlines() + [f"{'100 connections':>17}  {scene.value}" for scene in Scene]

    assert [line for line in lines if len(line.rstrip()) > 80] == []


def test_the_report_shows_which_side_is_better():
    """The better figure of each row is green, whichever side it is on, and neither is where they are the same."""
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True)
    print_report(console, ("ours", "theirs"), run(recovered_in=0.2), run(hanging_up=50), [])
    shown = console.export_text(styles=True)
    green = re.findall(r"^ *(\S.*?) {2,}.*?(?:\x1b\[1;32m *([\d.]+)(?: s)?\x1b\[0m)", shown, re.MULTILINE)

    assert [(name.strip(), figure) for name, figure in green] == [
        ("per second, to a peer that hangs up", "5.0"),
        *[(f"first answer when {scene.value}", "0.10") for scene in Scene if scene in RECOVERIES],
    ]
