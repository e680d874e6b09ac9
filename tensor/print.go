package tensor

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// These are the defaults of torch.set_printoptions.
const (
	printPrecision = 4
	printThreshold = 1000 // a tensor with more elements is printed without its middle
	printEdge      = 3
	printWidth     = 80
)

// String prints x as torch does: values in rows, summarised if there are more than 1000 elements.
// It prints a device other than "cpu", and an element type other than float32 that the values do
// not show. A tensor that requires a gradient is printed with grad_fn or requires_grad.
func (x *Tensor) String() string {
	if x == nil {
		return "tensor(nil)"
	}
	if x.freed.Load() {
		return "tensor(freed, " + x.describe().String() + ")"
	}
	p := printer{full: x.layout.Shape, summary: x.Size() > printThreshold}
	p.load(x)
	const prefix = "tensor("
	body := "[]"
	if x.Size() > 0 {
		p.measure()
		body, _ = p.block(0, 0, len(prefix))
	}
	var suffix []string
	if x.st.dev != hostDevice() {
		suffix = append(suffix, "device='"+x.st.dev.Name()+"'")
	}
	if x.Size() == 0 && x.Rank() != 1 {
		s := x.layout.Shape.String()
		suffix = append(suffix, "size=("+s[1:len(s)-1]+")")
	}
	usual := x.dtype == dtype.F32 || x.Size() > 0 && (x.dtype == dtype.I64 || x.dtype == dtype.Bool)
	if !usual {
		suffix = append(suffix, "dtype=torch."+x.dtype.String())
	}
	switch x.synced(); {
	case x.node != nil:
		suffix = append(suffix, "grad_fn=<"+x.node.op+">")
	case x.needsGrad:
		suffix = append(suffix, "requires_grad=True")
	}
	out := prefix + body
	last := len(out) - strings.LastIndexByte(out, '\n') + 1
	for _, s := range suffix {
		if last+len(s)+2 > printWidth {
			out += ",\n" + strings.Repeat(" ", len(prefix)) + s
			last = len(prefix) + len(s)
		} else {
			out += ", " + s
			last += len(s) + 2
		}
	}
	return out + ")"
}

// Format prints x for package fmt. The verbs v, s and q print what [Tensor.String] returns. All
// other verbs, such as %.3f, print the only element of x, as Python's f"{x.item():.3f}" does. If x
// has another number of elements, they print its shape, between fmt's marks for a wrong verb.
func (x *Tensor) Format(f fmt.State, verb rune) {
	as := fmt.FormatString(f, verb)
	switch {
	case strings.ContainsRune("vsq", verb):
		if verb == 'v' {
			as = fmt.FormatString(f, 's')
		}
		fmt.Fprintf(f, as, x.String())
	case x == nil || x.freed.Load():
		io.WriteString(f, x.String())
	case x.Size() != 1:
		fmt.Fprintf(f, "%%!%c(a tensor of shape %v, which is not one number)", verb, x.layout.Shape)
	case x.dtype.IsFloat() || strings.ContainsRune("eEfFgG", verb):
		fmt.Fprintf(f, as, x.Item())
	case x.dtype == dtype.Bool:
		fmt.Fprintf(f, as, x.Item() != 0)
	default:
		fmt.Fprintf(f, as, x.Ints()[0])
	}
}

// A printer formats the elements that are shown.
type printer struct {
	full shape.Dims // shape of the tensor
	// shape of the shown part, with at most 2·printEdge entries in a summarised dimension
	shown   shape.Dims
	summary bool
	dtype   dtype.Type
	bits    []uint64
	width   int
	whole   bool // true if all values are whole numbers
	science bool
}

func (p *printer) load(x *Tensor) {
	c := x.scope.child()
	defer c.recycle()
	c.modes.noGrad = true
	y := x.detachedIn(c)
	if p.summary {
		for i := range x.Rank() {
			if n := x.layout.Shape.At(i); n > 2*printEdge {
				var keep []int64
				for k := range printEdge {
					keep = append(keep, int64(k))
				}
				for k := range printEdge {
					keep = append(keep, int64(n-printEdge+k))
				}
				y = y.IndexSelect(i, c.On(x.st.dev).From(keep))
			}
		}
	}
	p.shown, p.dtype = y.layout.Shape, x.dtype
	b := y.bytes("string")
	p.bits = make([]uint64, y.Size())
	for i := range p.bits {
		p.bits[i] = element(x.dtype, b[i*x.dtype.Size():])
	}
}

// measure chooses the format and the width of the columns. It considers values that are finite and
// not zero.
func (p *printer) measure() {
	if !p.dtype.IsFloat() {
		for _, b := range p.bits {
			p.width = max(p.width, len(p.plain(b)))
		}
		return
	}
	p.whole, p.width = true, 1
	least, greatest := math.Inf(1), 0.0
	var values []float64
	for _, b := range p.bits {
		v := expr.Decode(p.dtype, b)
		if v == 0 || v-v != 0 {
			continue
		}
		values = append(values, v)
		a := math.Abs(v)
		least, greatest = min(least, a), max(greatest, a)
		p.whole = p.whole && v == math.Ceil(v)
	}
	if len(values) == 0 {
		return
	}
	p.science = greatest/least > 1000 || greatest > 1e8 || !p.whole && least < 1e-4
	for _, v := range values {
		p.width = max(p.width, len(p.float(v)))
	}
}

func (p *printer) float(v float64) string {
	switch {
	case v != v:
		return "nan"
	case math.IsInf(v, 1):
		return "inf"
	case math.IsInf(v, -1):
		return "-inf"
	case p.science:
		return strconv.FormatFloat(v, 'e', printPrecision, 64)
	case p.whole:
		return strconv.FormatFloat(v, 'f', 0, 64) + "."
	}
	return strconv.FormatFloat(v, 'f', printPrecision, 64)
}

func (p *printer) plain(b uint64) string {
	switch p.dtype {
	case dtype.Bool:
		if b != 0 {
			return "True"
		}
		return "False"
	case dtype.I64:
		return strconv.FormatInt(int64(b), 10)
	}
	return strconv.FormatInt(int64(expr.Decode(p.dtype, b)), 10)
}

// element returns element i, padded to the column's width. A single number is not padded.
func (p *printer) element(i int) string {
	s := ""
	if p.dtype.IsFloat() {
		s = p.float(expr.Decode(p.dtype, p.bits[i]))
	} else {
		s = p.plain(p.bits[i])
	}
	return strings.Repeat(" ", max(p.width-len(s), 0)) + s
}

// block prints the dimensions from d on, beginning with element i. It returns the number of the
// next element.
func (p *printer) block(d, i, indent int) (string, int) {
	rank := p.shown.Rank()
	if rank == 0 {
		return p.element(0), 1
	}
	n := p.shown.At(d)
	cut := p.summary && p.full.At(d) > 2*printEdge
	var parts []string
	for k := range n {
		if cut && k == printEdge {
			if d == rank-1 {
				parts = append(parts, " ...")
			} else {
				parts = append(parts, "...")
			}
		}
		var s string
		if d == rank-1 {
			s = p.element(i)
			i++
		} else {
			s, i = p.block(d+1, i, indent+1)
		}
		parts = append(parts, s)
	}
	if d < rank-1 {
		return "[" + strings.Join(parts, ","+strings.Repeat("\n", rank-1-d)+strings.Repeat(" ", indent+1)) + "]", i
	}
	perLine := max(1, (printWidth-indent)/(p.width+2))
	var lines []string
	for len(parts) > perLine {
		lines = append(lines, strings.Join(parts[:perLine], ", "))
		parts = parts[perLine:]
	}
	lines = append(lines, strings.Join(parts, ", "))
	return "[" + strings.Join(lines, ",\n"+strings.Repeat(" ", indent+1)) + "]", i
}
