"""Reads profile/memsnap/testdata/snapshot.pickle, which Go wrote, with PyTorch's own viewer of memory.

FLAMBEAU_UPDATE=1 go test ./profile/memsnap writes the pickle. This script checks that PyTorch reads it, and finds the content that the test wrote.
"""
import os
import pickle

from torch.cuda import _memory_viz as viz

path = os.path.join(os.path.dirname(__file__), "..", "profile", "memsnap", "testdata", "snapshot.pickle")
with open(path, "rb") as f:
    data = pickle.load(f)

assert [len(t) for t in data["device_traces"]] == [0, 13], "the events of device 1"
trace = data["device_traces"][1]
assert [e["action"] for e in trace] == [
    "alloc", "segment_alloc", "alloc", "free_requested", "free_completed", "segment_map", "segment_map", "segment_unmap", "oom", "alloc",
    "free_requested", "segment_free", "snapshot"]
assert trace[0]["size"] == 2500 and trace[0]["addr"] == 0x7F0000001000 and trace[0]["time_us"] == 1767323045000000
assert trace[0]["frames"][0]["name"] == "matmul [4, 96] float32 in step/forward"
assert trace[0]["frames"][2] == {"name": "main.step", "filename": "/src/net/main.go", "line": 20}
assert trace[8]["device_free"] == 12345 and trace[8]["size"] == 1 << 34
# Because of a misspelt name, the viewer's page does not add "unknown" to the categories itself. So
# a trace with categories must contain it.
assert "unknown" in {e.get("category") for e in trace}
small, waiting, large = data["segments"]
assert (small["total_size"], small["allocated_size"], small["active_size"], small["segment_type"]) == (2 << 20, 5632, 5632, "small")
assert waiting["blocks"][0]["state"] == "active_pending_free" and (waiting["allocated_size"], waiting["active_size"]) == (0, 512)
assert large["is_expandable"] and large["stream"] == 7 and large["device"] == 1
assert data["allocator_settings"]["expandable_segments"]

assert "matmul [4, 96]" in viz.segments(data, format_flamegraph=str) and "active_pending_free" in viz.memory(data, format_flamegraph=str)
assert "total_allocated: 5.5KiB" in viz.segsum(data)
assert "raise OutOfMemoryError # 16.0GiB requested, 12.1KiB free in CUDA" in viz.trace(data)
assert len(viz.trace_plot(data)) > 1000 and len(viz.segment_plot(data)) > 1000
print("PyTorch reads", os.path.normpath(path))
