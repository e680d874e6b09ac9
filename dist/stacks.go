package dist

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/pprof"
	"strings"
)

// rankLabel is the runtime/pprof label of a rank's goroutines and of the goroutines that they
// start.
const rankLabel = "flambeau rank"

func (w *world) labelOf(rank int) string { return fmt.Sprintf("%d of run %s", rank, w.label) }

// workers returns how many threads can run Go code at the same time.
func workers() int { return runtime.GOMAXPROCS(0) }

// stacks returns the stacks of the ranks' goroutines, in the format of runtime/pprof.
func (w *world) stacks(ranks []int) string {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, r := range ranks {
		fmt.Fprintf(&b, "rank %d, on %s, is here:\n", r, w.devices[r].Name())
		label := fmt.Sprintf("%q:%q", rankLabel, w.labelOf(r))
		for _, one := range strings.Split(all.String(), "\n\n") {
			if !strings.Contains(one, label) {
				continue
			}
			for _, line := range strings.Split(one, "\n") {
				if f := strings.Fields(strings.TrimPrefix(line, "#")); strings.HasPrefix(line, "#\t") && len(f) >= 3 {
					fmt.Fprintf(&b, "  %s\n    %s\n", f[1], f[2])
				}
			}
		}
	}
	return b.String()
}

// ranksOf returns a text such as "rank 1" or "ranks 1, 3".
func ranksOf(ranks []int) string {
	s := strings.Trim(strings.ReplaceAll(fmt.Sprint(ranks), " ", ", "), "[]")
	if len(ranks) == 1 {
		return "rank " + s
	}
	return "ranks " + s
}
