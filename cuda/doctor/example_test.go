package doctor_test

import (
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/flambeau-go/flambeau/cuda/doctor"
)

// A program that falls back to the CPU can say why.
func Example() {
	r := doctor.Examine()
	for _, f := range r.Findings {
		if f.Level == doctor.Unused {
			fmt.Fprintln(os.Stderr, "no GPU:", f.Seen, "-", f.Do)
		}
	}
	fmt.Println(r.ExitCode() == int(r.Verdict))
	// Output: true
}

// A report can be printed for people. A program can also use its parts, such as the GPUs and the
// optional libraries.
func ExampleReport() {
	r := doctor.Examine()
	for _, g := range r.GPUs {
		fmt.Fprintln(os.Stderr, g.Name, g.Product, "compute capability", g.Capability, "usable:", g.Usable)
	}
	for _, l := range r.Libraries {
		fmt.Println(l.Name)
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Contains(b.String(), "optional libraries"))
	// Output:
	// cublasLt
	// cudnn
	// nccl
	// nvml
	// true
}
