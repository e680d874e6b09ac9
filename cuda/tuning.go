package cuda

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
)

// Tuning says how the form of a matrix product is chosen: its tiles, and how its sums are divided
// among blocks. The form decides the time and the order of additions, and thus the last bits of
// results.
type Tuning uint32

// The tunings.
const (
	TuningOff Tuning = iota // the library's model of the GPU chooses the form
	// TuningUse uses the forms that earlier programs have measured to be the fastest. Without a
	// measurement it is like TuningOff.
	TuningUse
	// TuningOn is like TuningUse, but a product without a measurement is measured at its first
	// use.
	TuningOn
)

// String returns the value of FLAMBEAU_TUNE for t.
func (t Tuning) String() string {
	if int(t) >= len(tunings) {
		return fmt.Sprintf("Tuning(%d)", uint32(t))
	}
	return tunings[t]
}

// tunings lists the values of FLAMBEAU_TUNE. The first one is the default.
var tunings = []string{TuningOff: "0", TuningUse: "use", TuningOn: "1"}

// tuneError says that the value of FLAMBEAU_TUNE is unknown.
type tuneError struct{ value string }

// Error names the value, and the values that FLAMBEAU_TUNE accepts.
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

// SetTuning sets how the forms of the device's matrix products are chosen from now on.
// FLAMBEAU_TUNE sets the default for each device that is opened: 1 is [TuningOn], use is
// [TuningUse]. If it is unset, the default is [TuningOff]. With TuningOff a program gives the same
// bits on every run, whatever was measured before.
//
// With TuningOn, a product takes longer when its types, shapes and layouts occur for the first
// time. The twelve forms that the model considers best run on its operands, with results in
// separate memory. The fastest form is used from then on, except if it is less than 3 % faster than
// the model's choice.
//
// Some conditions prevent a measurement: memory does not suffice, work is being recorded for a
// graph, a profile measures times, the device is emulated without memory (mode=meta), or another
// goroutine measures on the device. Then the model chooses, and the product is measured at a later
// use. Products that cublasLt computes are not affected.
//
// Measurements are kept below [os.UserCacheDir] in flambeau/products, in a file for each kind of
// GPU and version of the driver. Other programs use them too. A file that is damaged, or was
// measured with other kernels, is ignored. If the file cannot be written, that is reported once
// with package log, and only this process uses the measurements. Measurements of an emulated GPU,
// whose times are those of its cost model, are kept only if FLAMBEAU_TUNE asks for them.
func (d *Device) SetTuning(t Tuning) { d.tuning.Store(uint32(t)) }

// Tuning returns the value that [Device.SetTuning] set.
func (d *Device) Tuning() Tuning { return Tuning(d.tuning.Load()) }

// TunedProduct is a matrix product that was measured on a GPU.
type TunedProduct struct {
	// Product is a text with the types of the factors, the sizes batch×m×n×k, the layouts of the
	// operands, and further operations on the results.
	Product string `json:"product"`
	Planned string `json:"planned"` // the form that the model chose
	// the form that was measured to be the fastest; it may equal Planned
	Chosen string        `json:"chosen"`
	Before time.Duration `json:"planned_nanoseconds"`
	After  time.Duration `json:"chosen_nanoseconds"`
}

// String returns a line such as "bfloat16 1x512x512x512 k·o=v: 64x64x32, k by 256 in 11µs; the
// model's 64x64x64 in 14µs".
func (p TunedProduct) String() string {
	return fmt.Sprintf("%s: %s in %v; the model's %s in %v", p.Product, p.Chosen, p.After, p.Planned, p.Before)
}

// TunedProducts returns the products that this process and earlier ones measured on GPUs of the
// device's kind, sorted by [TunedProduct.Product]. It also works if tuning is off. An emulated GPU
// uses a file only if FLAMBEAU_TUNE is set.
func (d *Device) TunedProducts() []TunedProduct {
	var list []TunedProduct
	for _, r := range d.tuned.list() {
		list = append(list, TunedProduct{r.Product, r.Planned.String(), r.Form.String(), seconds(r.PlannedSeconds), seconds(r.Seconds)})
	}
	slices.SortFunc(list, func(a, b TunedProduct) int { return strings.Compare(a.Product, b.Product) })
	return list
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// chooser returns the function that chooses the form of a product, or nil if the model chooses.
func (t *scratch) chooser() kernels.Chooser {
	if t.d.tuner().Tuning() == TuningOff {
		return nil
	}
	return t.choose
}

// tuner returns the device that keeps the measurements. If d rehearses the work of another device,
// tuner returns that device, so that both use the same kernels.
func (d *Device) tuner() *Device {
	for d.rehearses != nil {
		d = d.rehearses
	}
	return d
}

// choose returns the measured form of a product. If necessary, it measures the product now. It is a
// [kernels.Chooser].
func (t *scratch) choose(c *kernels.Choice) (kernels.Form, bool) {
	d, of := t.d, t.d.tuner()
	p := c.Product()
	known := of.tuned.find(p, c)
	if known.ok {
		return known.form, true
	}
	profiled := func() bool { t := device.Tracing(); return t != nil && t.Wants().Times }
	if d != of || of.Tuning() != TuningOn || d.p.meta || t.s.Recording() || profiled() || of.tuned.full() || time.Now().Before(known.retryAt) {
		return kernels.Form{}, false
	}
	r, ok := t.measure(c)
	if !ok {
		of.tuned.postpone(p)
		return kernels.Form{}, false
	}
	return of.tuned.add(p, r), true
}
