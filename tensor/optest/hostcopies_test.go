package optest

import (
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// hostCopies lists, by their Go names, the ops that may copy between the host and the device. Each
// entry limits the number of uploads, the number of downloads, and the bytes of one download. All
// other ops neither wait for the device nor copy anything.
var hostCopies = map[string]struct {
	uploads, downloads, bytes uint64
	why                       string
}{
	"Nonzero":      {0, 1, 8, "the number of elements is the size of the result"},
	"Unique":       {0, 1, 8, "the number of values is the size of the result"},
	"MaskedSelect": {0, 1, 8, "the number of elements is the size of the result"},
	"Index":        {0, 1, 8, "of a bool mask, as MaskedSelect"},
	"IndexPut":     {0, 1, 8, "of a bool mask, as MaskedSelect"},
}

// copyWatch counts the copies that an op makes.
type copyWatch struct {
	t    *testing.T
	gpu  *cuda.Device
	seen map[string]bool
	host map[string]bool // ops that work on the host; the value is true if the op has copied
	// copies that the row of the table allows: uploads of host lists, and downloads of numbers
	rowSends, rowReads uint64
}

// check runs an op. It fails if the op copies more between host and GPU than hostCopies or the op's
// row of the table allows.
func (c *copyWatch) check(what string, names []string, f func()) {
	c.t.Helper()
	before := c.gpu.Counters()
	f()
	after := c.gpu.Counters()
	up, down, bytes := after.Uploads-before.Uploads, after.Downloads-before.Downloads, after.DownloadedBytes-before.DownloadedBytes
	for _, name := range names {
		if most, ok := hostCopies[name]; ok && up <= most.uploads && down <= most.downloads && bytes <= down*most.bytes {
			c.seen[name] = c.seen[name] || up+down > 0
			return
		}
	}
	if up <= c.rowSends && down <= c.rowReads && bytes == 8*down {
		return
	}
	op, _, _ := strings.Cut(what, " ")
	if copied, ok := c.host[op]; ok {
		c.host[op] = copied || up > 0 && down > 0
		return
	}
	if up != 0 || down != 0 {
		c.t.Errorf("%s: %d uploads, %d downloads of %d bytes", what, up, down, bytes)
	}
}

// secondDerivatives computes first and second derivatives of y with respect to its leaves, with
// seeds on the device.
func secondDerivatives(y *tt, leaves []*tt) {
	if len(leaves) == 0 || !y.NeedsGrad() || !y.Type().IsFloat() {
		return
	}
	tensor.Gradients(y, leaves, tensor.GradOutput(y.Detach().OnesLike()), tensor.AllowUnused(), tensor.RetainGraph())
	var sum *tt
	for _, g := range tensor.Gradients(y, leaves, tensor.GradOutput(y.Detach().OnesLike()), tensor.CreateGraph(), tensor.AllowUnused()) {
		if g != nil && g.NeedsGrad() {
			if part := g.Sum(); sum == nil {
				sum = part
			} else {
				sum = sum.Add(part)
			}
		}
	}
	if sum != nil {
		tensor.Gradients(sum, leaves, tensor.AllowUnused())
	}
}

// TestNoHostCopies runs every op of the matrix forward, backward, and for second derivatives, with
// operands on the device. No op may wait for the device or copy data from or to the host, except as
// hostCopies allows.
func TestNoHostCopies(t *testing.T) {
	c := &copyWatch{t, emulated(t), map[string]bool{}, map[string]bool{}, 0, 0}
	for _, op := range tensor.HostOps() {
		c.host[op] = false
	}
	gpu, walked := c.gpu, map[string]bool{}
	w := &walk{dev: gpu}
	wanted := func(op string) bool { return !testing.Short() || someOps(op) }
	for _, e := range tensor.Declared() {
		if !wanted(e.Name) {
			continue
		}
		guard(t, e.Name, func(s *tensor.Scope) {
			ty := dtype.F32
			if e.Result == tensor.Integral {
				ty = dtype.I64
			}
			sp := spec{"host copies", [][]int{{3, 4}, {4}, {3, 1}}, []layout{transposed, contiguous}}
			in := operands(e, ty, sp, 0)
			var x, leaves []*tt
			for k := range in {
				x = append(x, w.put(s, &in[k], typeOf(e, k, ty), sp.lay[k%2]))
				if e.Fixed>>k&1 == 0 && differentiable(e) {
					leaves = append(leaves, x[k].RequiresGrad())
				}
			}
			walked[elementName(e)] = true
			c.check(e.Name, []string{elementName(e)}, func() { secondDerivatives(call(e, x), leaves) })
		})
	}
	for _, r := range tensor.Reductions() {
		guard(t, r.Name, func(s *tensor.Scope) {
			in := sample(random(r.Name), dtype.F32, r.Domain[0], r.Domain[1], 3, 40)
			x := w.put(s, &in, dtype.F32, transposed)
			var leaves []*tt
			if reducible(r) {
				leaves = append(leaves, x.RequiresGrad())
			}
			walked[reductionName(r)] = true
			c.check(r.Name, []string{reductionName(r)}, func() { secondDerivatives(applyReduction(r, x, 1), leaves); applyReduction(r, x) })
		})
	}
	for _, r := range table() {
		if !wanted(r.op) {
			continue
		}
		for _, mode := range [][]tensor.Option{nil, {tensor.Composed()}} {
			if mode != nil && !r.kernels {
				continue
			}
			err := tensor.Try(func() {
				tensor.Do(func(s *tensor.Scope) {
					x, leaves, _ := r.place(w, s, r.operands(dtype.F32), dtype.F32, transposed)
					for _, name := range rowNames(&r) {
						walked[name] = true
					}
					if r.noGrad {
						leaves = nil
					}
					c.rowSends, c.rowReads = uint64(r.uploads), uint64(r.reads)
					defer func() { c.rowSends, c.rowReads = 0, 0 }()
					c.check(r.String(), rowNames(&r), func() { secondDerivatives(r.call(x), leaves) })
				}, mode...)
			})
			if err != nil {
				t.Errorf("%v: %v", &r, err)
			}
		}
	}
	for _, f := range inPlaceForms {
		guard(t, f.name, func(s *tensor.Scope) {
			ty := f.types()[0]
			var x []*tt
			for k := range f.arity {
				lo, hi := 0.3, 0.9
				if f.integer {
					lo, hi = 0, 100
				}
				a := sample(random(f.name), ty, lo, hi, 4, 6)
				x = append(x, w.put(s, &a, ty, []layout{transposed, contiguous, contiguous}[k]))
			}
			leaves := x
			if f.integer {
				leaves = nil
			}
			for _, l := range leaves {
				l.RequiresGrad()
			}
			walked[f.name+"InPlace"] = true
			c.check(f.name+"InPlace", nil, func() {
				secondDerivatives(f.inPlace(append([]*tt{x[0].Clone()}, x[1:]...)), leaves)
			})
		})
	}
	for _, src := range sources {
		// From and NewTensor make a tensor from numbers on the host, so they must copy
		if walked[src.name] = true; src.name == "From" || src.name == "NewTensor" {
			continue
		}
		guard(t, src.name, func(s *tensor.Scope) {
			ty := src.types[len(src.types)-1]
			c.check(src.name, []string{src.name}, func() { src.call(s.On(gpu).Typed(ty), ty) })
		})
	}
	for _, o := range Matrix() {
		if !walked[o.Name] && !testing.Short() {
			t.Errorf("%s is in the matrix, its copies were not counted", o.Name)
		}
		if _, ok := hostCopies[o.Name]; ok && !c.seen[o.Name] && !testing.Short() {
			t.Errorf("%s is listed with copies, and made none", o.Name)
		}
	}
	for op, copied := range c.host {
		if !copied && !testing.Short() {
			t.Errorf("%s is listed as an op that works on the host, and copied nothing", op)
		}
	}
	tensor.Do(func(s *tensor.Scope) {
		x := s.On(gpu).Ones(4, 5).RequiresGrad()
		c.check("a step", nil, func() {
			y := x.Gelu().Dropout(0.5).Add(s.On(gpu).Randn(5)).Softmax(-1).Amax(0, tensor.KeepDim).Mean()
			y.Backward()
			x.In(s).Detach().AddInPlace(x.Grad())
		})
		before := gpu.Counters()
		x.Sum().Item()
		if after := gpu.Counters(); after.Downloads != before.Downloads+1 || after.DownloadedBytes != before.DownloadedBytes+4 || after.Uploads != before.Uploads {
			t.Errorf("Item is not one download of 4 bytes: %+v then %+v", before, after)
		}
	})
}
