package doctor_test

import (
	"fmt"
	"os"

	"github.com/flambeau-go/flambeau/cuda/doctor"
)

// A program that falls back to the CPU can say why.
func ExampleExamine() {
	r := doctor.Examine()
	for _, f := range r.Findings {
		if f.Level == doctor.Unused {
			fmt.Fprintln(os.Stderr, "no GPU:", f.Seen, "-", f.Do)
		}
	}
	fmt.Println(r.ExitCode() == int(r.Verdict))
	// Output: true
}
