"""Actions of torch.profiler.schedule, and how its tables write times and sizes: profile/testdata/torch.json."""

import json
import os

from torch.autograd.profiler_util import _format_memory, _format_time
from torch.profiler import schedule

import golden

SCHEDULES = [
    dict(wait=1, warmup=1, active=2),
    dict(wait=0, warmup=0, active=1),
    dict(wait=2, warmup=1, active=3, repeat=2, skip_first=3),
    dict(wait=3, warmup=1, active=2, repeat=2, skip_first=1, skip_first_wait=1),
    dict(wait=0, warmup=2, active=1, repeat=1),
    dict(wait=5, warmup=0, active=1, repeat=0, skip_first=7),
]


def main():
    cases = [{**kw, "actions": [schedule(**kw)(i).name for i in range(24)]} for kw in SCHEDULES]
    times = {str(ns): _format_time(ns / 1000) for ns in (0, 1, 999, 12_345, 1_000_000, 1_234_567, 1_000_000_000, 61_234_567_890)}
    sizes = {str(n): _format_memory(n) for n in (0, 80, -80, 1024, 2600, -2600, 1 << 20, 3_000_000, 1 << 30, -5_000_000_000)}
    path = os.path.join(golden.REPOSITORY, "profile", "testdata", "torch.json")
    with open(path, "w") as f:
        json.dump({"made": golden.versions(__file__, 0), "schedules": cases, "times": times, "sizes": sizes}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
