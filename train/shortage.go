package train

import (
	"errors"
	"fmt"
	"strings"

	"github.com/flambeau-go/flambeau/device"
)

// A MemoryError reports a lack of memory that could not be resolved. It says how much was
// requested, how much is available, what holds the memory in use, and what to try. The failed
// operation has changed nothing. A MemoryError wraps [device.ErrOutOfMemory].
type MemoryError struct {
	// operation that ran out of memory, such as "the gradients of a single sample"
	What         string
	Samples      int  // number of samples in the batch; 0 if it does not matter
	Checkpointed bool // whether Backward was already recomputing activations
	// Shortage describes the last failed allocation. Needed is the minimum memory that the device
	// would need: the memory in use at that time plus the requested memory. If the device does not
	// report these numbers, Shortage and Needed are zero.
	Shortage device.Shortage
	Needed   int
	Advice   []string
	Err      error
}

// Unwrap returns the device's error.
func (e *MemoryError) Unwrap() error { return e.Err }

func (e *MemoryError) Error() string {
	var b strings.Builder
	b.WriteString("train: out of memory")
	if e.Shortage.Device != "" {
		b.WriteString(" on " + e.Shortage.Device)
	}
	b.WriteString(" for " + e.What)
	s := &e.Shortage
	if s.Asked > 0 {
		fmt.Fprintf(&b, ": asked for %s (%s), %s are available of %s, at least %s are needed", size(s.Asked), s.For, size(s.Available()), size(s.Total), size(e.Needed))
	} else {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if len(s.Owners) > 0 {
		b.WriteString("\nlargest owners:")
		for _, o := range s.Owners[:min(5, len(s.Owners))] {
			b.WriteString("\n  " + o)
		}
	}
	if len(e.Advice) > 0 {
		b.WriteString("\nwhat to try:")
		for _, a := range e.Advice {
			b.WriteString("\n  " + a)
		}
	}
	return b.String()
}

// size formats bytes in binary units.
func size(n int) string {
	v, unit := float64(n), 0
	for ; v >= 1024 && unit < 4; unit++ {
		v /= 1024
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.2f %ciB", v, " KMGT"[unit])
}

// memoryError returns the error for a failure that could not be resolved. name is the name of the
// failed operation. An empty name means the gradients of a single sample, in a batch of n samples.
func (a *Adapt) memoryError(name string, n int, err error) *MemoryError {
	e := &MemoryError{What: name, Samples: n, Checkpointed: a.recomputes, Err: err}
	if name == "" {
		e.What = "the gradients of a single sample"
		if n > 1 {
			e.What += fmt.Sprintf(" of a batch of %d", n)
		}
	}
	var short device.ShortageError
	if errors.As(err, &short) {
		e.Shortage = short.Shortage()
		e.Needed = e.Shortage.Allocated + e.Shortage.Asked
	}
	if name != "" {
		e.Advice = append(e.Advice, "an optimizer with less state: SGD has none, Adafactor a row and a column for each matrix, SGD with momentum, Lion and Muon one number for each parameter, Adam two")
	} else {
		e.Advice = append(e.Advice, "smaller samples: shorter sequences, smaller images")
		switch {
		case a.recomputes:
		case a.c.Keep:
			e.Advice = append(e.Advice, "activations computed again instead of kept: nn.SetCheckpointing")
		default:
			e.Advice = append(e.Advice, "autograd.Checkpoint around the parts of the model: none of them knows how by itself")
		}
	}
	e.Advice = append(e.Advice, "a smaller model, or one of 16-bit parameters (nn.Cast)", "a device with more memory, or other programs off this one")
	return e
}
