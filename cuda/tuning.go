package cuda

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
)

// A Tuning says who chooses the form of a matrix product: its tiles, and how its sums are divided
// among blocks. What a form changes beside the time is the order of sums, and so the last bits.
type Tuning uint32

// The tunings.
const (
	TuningOff Tuning = iota // the library's model of the GPU chooses
	TuningUse               // measurements of earlier programs choose where there are any
	TuningOn                // a product that was not measured yet is measured when it is first done
)

// String returns what FLAMBEAU_TUNE calls it.
func (t Tuning) String() string {
	if int(t) >= len(tunings) {
		return fmt.Sprintf("Tuning(%d)", uint32(t))
	}
	return tunings[t]
}

// tunings are the values of FLAMBEAU_TUNE; unset is the first.
var tunings = []string{TuningOff: "0", TuningUse: "use", TuningOn: "1"}

// A tuneError is a FLAMBEAU_TUNE that means nothing.
type tuneError struct{ value string }

// Error says what is accepted.
func (e *tuneError) Error() string {
	return fmt.Sprintf("FLAMBEAU_TUNE is %q, which means nothing; want 1, use or 0", e.value)
}

// parseTuning reads a value of FLAMBEAU_TUNE. The error is a *tuneError.
func parseTuning(value string) (Tuning, error) {
	if value == "" {
		return TuningOff, nil
	}
	i := slices.Index(tunings, value)
	if i < 0 {
		return TuningOff, &tuneError{value}
	}
	return Tuning(i), nil
}

// SetTuning says who chooses the forms of the device's matrix products from now on. FLAMBEAU_TUNE
// says it for each device that is opened: 1 is [TuningOn], use is [TuningUse]. Without it there is
// [TuningOff], with which the same program gives the same bits, whatever was measured before.
//
// With TuningOn a product is held up when its types, shapes and layouts come for the first time.
// Up to twelve forms, those that the model takes for good ones, run on its operands, with results
// in memory of their own. The one of least time is kept, unless it gains less than 3 % on the
// model's.
//
// Nothing is measured where memory does not suffice, while work is recorded for a graph, while a
// profile takes times, on a device without memory, and while another goroutine measures on the
// device. The model chooses then, and the product is measured another time. Products that cublasLt
// does are not concerned.
//
// Measurements are kept below [os.UserCacheDir] in flambeau/products, in a file for each kind of
// GPU and version of the driver, and serve other programs. A file that is damaged, or of kernels
// that have changed, counts for nothing. Where it cannot be written, package log is told once, and
// measurements serve this process alone. So do those of an emulated GPU, whose times are those of
// its cost model, unless FLAMBEAU_TUNE asks for them.
func (d *Device) SetTuning(t Tuning) { d.tuning.Store(uint32(t)) }

// Tuning returns what [Device.SetTuning] chose.
func (d *Device) Tuning() Tuning { return Tuning(d.tuning.Load()) }

// A TunedProduct is a matrix product that was measured on a GPU.
type TunedProduct struct {
	// Product is the types of its factors, the batch and m×n×k, how operands lie, and what else is
	// done to the results.
	Product string        `json:"product"`
	Planned string        `json:"planned"` // the model's form
	Chosen  string        `json:"chosen"`  // the measured one, which may be the same
	Before  time.Duration `json:"planned_nanoseconds"`
	After   time.Duration `json:"chosen_nanoseconds"`
}

// String returns a line such as "bfloat16 1x512x512x512 k·o=v: 64x64x32, k by 256 in 11µs; the
// model's 64x64x64 in 14µs".
func (p TunedProduct) String() string {
	return fmt.Sprintf("%s: %s in %v; the model's %s in %v", p.Product, p.Chosen, p.After, p.Planned, p.Before)
}

// TunedProducts returns what was measured on GPUs of the device's kind, by this process and by
// earlier ones, in the order of [TunedProduct.Product]. Tuning need not be on, but for an
// emulated GPU: without FLAMBEAU_TUNE it keeps and reads no file.
func (d *Device) TunedProducts() []TunedProduct {
	var list []TunedProduct
	for _, r := range d.tuned.all() {
		list = append(list, TunedProduct{r.Product, r.Planned.String(), r.Form.String(), seconds(r.PlannedSeconds), seconds(r.Seconds)})
	}
	slices.SortFunc(list, func(a, b TunedProduct) int { return strings.Compare(a.Product, b.Product) })
	return list
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// chooser is who chooses the form of a product; nil leaves it to the model.
func (t *scratch) chooser() kernels.Chooser {
	if t.d.tuner().Tuning() == TuningOff {
		return nil
	}
	return t.choose
}

// tuner is the device whose measurements count: that which a rehearsal is for, which takes its
// kernels.
func (d *Device) tuner() *Device {
	for d.rehearses != nil {
		d = d.rehearses
	}
	return d
}

// choose returns what was measured of a product, now or before. It is a [kernels.Chooser].
func (t *scratch) choose(c *kernels.Choice) (kernels.Form, bool) {
	d, of := t.d, t.d.tuner()
	p := c.Product()
	known := of.tuned.find(p, c)
	if known.ok {
		return known.form, true
	}
	profiled := func() bool { t := device.Tracing(); return t != nil && t.Wants().Times }
	if d != of || of.Tuning() != TuningOn || d.p.meta || t.s.Recording() || profiled() || of.tuned.full() || time.Now().Before(known.again) {
		return kernels.Form{}, false
	}
	r, ok := t.measure(c)
	if !ok {
		of.tuned.postpone(p)
		return kernels.Form{}, false
	}
	return of.tuned.add(p, r), true
}
