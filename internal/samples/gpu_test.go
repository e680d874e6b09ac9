package samples

import (
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
)

// onGPU holds the entries whose first sample also runs on the emulated GPU. There is one entry for
// each kind of kernel.
var onGPU = map[string]bool{
	"add": true, "sigmoid": true, "where": true, "sum": true, "amax": true, "var": true,
	"cumsum": true, "sort": true, "matmul": true, "softmax": true, "gather": true,
	"scatter_add": true, "index_select": true, "permute": true, "cat": true,
	"nn.functional.conv2d": true, "nn.functional.max_pool2d": true,
	"nn.functional.layer_norm":    true,
	"nn.functional.cross_entropy": true, "nn.functional.gelu": true,
	"nn.functional.interpolate.bilinear": true,
}

// TestOpsGPU compares some operators with op_db on the emulated GPU, by the same rule as on the
// CPU.
func TestOpsGPU(t *testing.T) {
	gpus, err := cuda.Emulate("emulate")
	if err != nil {
		t.Fatal(err)
	}
	dev := gpus[0]
	w := walk{dev: dev}
	w.compare(t, "ops*.safetensors.gz", "testdata/ops.tsv", ways[:1], func(r *row) call {
		if onGPU[r.Op] && r.Type == "float32" {
			return calls[r.Op]
		}
		return nil
	})
	w.summary(t, "op_db on the emulated GPU", len(onGPU))
	if err := dev.Synchronize(); err != nil {
		t.Error(err)
	}
	if dev.Stats().AllocatedPeak == 0 {
		t.Error("nothing was computed on the GPU")
	}
}
