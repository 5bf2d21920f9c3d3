"""Prints one figure as a line of JSON: `python -m benchmarks.endurance WHAT`. `make endurance` prints all of them."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict

from benchmarks.apart import in_child, serving
from benchmarks.endurance import channels, forks, loops
from benchmarks.peers import echoing

_COUNTS = {"channels": 10_000, "loops": 1000, "forks": 500}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.endurance", description=__doc__)
    parser.add_argument("what", choices=_COUNTS)
    parser.add_argument("--count", type=int, help="default: 10,000 channels, 1,000 loops, 500 forks")
    parser.add_argument("--kind", choices=["plain", "ours"], default="ours", help="whose channels; default: ours")
    parser.add_argument("--fork-support", action="store_true", help="fork with grpcio's own fork support")
    parser.add_argument("--dialling", action="store_true", help="fork while a channel keeps dialling")
    chosen = parser.parse_args()
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = str(int(chosen.fork_support))
    count = chosen.count or _COUNTS[chosen.what]
    with serving(echoing) as peer:
        match chosen.what:
            case "channels":
                verdict = in_child(channels.open_and_close, peer.target, count)
            case "loops":
                verdict = in_child(loops.run_loops, peer.target, chosen.kind, count)
            case "forks":
                verdict = in_child(forks.fork_under_load, chosen.kind, peer.target, count, chosen.dialling)
    print(json.dumps({"endurance": chosen.what, **asdict(verdict)}), flush=True)


if __name__ == "__main__":
    main()
