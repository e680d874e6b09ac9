"""Tables of torch.cuda.memory_summary for made-up statistics, small and large, which need no GPU."""

import json
import os
import random

import torch
from golden import REPOSITORY, versions
from ops import SEED

QUANTITIES = ["allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes"]


def statistics(draw, scale):
    stats = {"num_ooms": draw.randrange(10), "num_alloc_retries": draw.randrange(1000), "max_split_size": -1}
    for q in ["oversize_allocations", "oversize_segments"] + [f"{q}.{p}" for q in QUANTITIES for p in ("all", "large_pool", "small_pool")]:
        for k in ("current", "peak", "allocated", "freed"):
            stats[f"{q}.{k}"] = 0 if q.startswith("oversize") else draw.randrange(int(scale * (1 if "bytes" in q else 1e-3)) + 1)
    return stats


def main():
    draw = random.Random(SEED)
    cases = []
    # The sizes around which the units change: 768 KiB, and so on for larger units, and 750
    # thousand.
    for device, scale in enumerate([0, 1000, 786431, 786432, 3e6, 1e9, 8e11, 9e14, 8e17]):
        stats = statistics(draw, scale)
        if scale in (786431, 786432):
            stats["allocated_bytes.all.current"] = scale
            stats["allocation.all.current"], stats["allocation.all.peak"] = 749999, 750000
        torch.cuda.memory.memory_stats = lambda device=None: stats
        torch.cuda.memory._get_device_index = lambda device, optional=False: device
        cases.append({"device": device, "stats": stats, "full": torch.cuda.memory.memory_summary(device), "abbreviated": torch.cuda.memory.memory_summary(device, True)})
    with open(os.path.join(REPOSITORY, "cuda/testdata/memory_summary.json"), "w") as f:
        json.dump({"versions": versions(__file__, SEED), "cases": cases}, f, indent=0, sort_keys=True)
        f.write("\n")


main()
