package profile_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/tensor"
)

// products returns a profile of two matrix products with different shapes.
func products() *profile.Profile {
	prof, err := profile.Start(profile.Options{Shapes: true, Stacks: true})
	if err != nil {
		log.Fatal(err)
	}
	for _, n := range []int{2, 3, 3} {
		x := tensor.Ones(n, n)
		x.MatMul(x)
	}
	if err := prof.Stop(); err != nil {
		log.Fatal(err)
	}
	return prof
}

// ByShape puts calls with the same operand shapes into one row:
// key_averages(group_by_input_shape=True).
func ExampleByShape() {
	for _, r := range products().KeyAverages(profile.ByShape()).Rows {
		if r.Key == "matmul" {
			fmt.Println(r.Key, r.Shapes, r.Count)
		}
	}
	// Output:
	// matmul [[2, 2] [2, 2]] 1
	// matmul [[3, 3] [3, 3]] 2
}

// ByStack puts calls from the same line into one row: key_averages(group_by_stack_n=1).
func ExampleByStack() {
	for _, r := range products().KeyAverages(profile.ByStack(1)).Rows {
		if r.Key == "matmul" {
			fmt.Println(r.Key, len(r.Stack), r.Count)
		}
	}
	// Output: matmul 1 3
}

// The example writes the files of torch.profiler for chrome://tracing and for flame graphs, and a
// file for go tool pprof.
func ExampleProfile_ExportChromeTrace() {
	dir, err := os.MkdirTemp("", "profile")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	prof := products()
	fmt.Println(prof.ExportChromeTrace(filepath.Join(dir, "trace.json.gz")))
	fmt.Println(prof.ExportStacks(filepath.Join(dir, "self.stacks"), "self_cpu_time_total"))
	fmt.Println(prof.ExportPprof(filepath.Join(dir, "prof.pb.gz")))
	// Output:
	// <nil>
	// <nil>
	// <nil>
}
