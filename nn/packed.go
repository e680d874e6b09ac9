package nn

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/flambeau-go/flambeau/tensor"
)

// PackedSequence holds sequences of several lengths without padding:
// torch.nn.utils.rnn.PackedSequence. Its rows are sorted by step: first step 0 of all sequences,
// then step 1, and so on. Among the rows of a step, longer sequences come first. Lengths and
// indices are ints, not tensors as in torch.
type PackedSequence struct {
	Data       *tensor.Tensor // [rows, …]
	BatchSizes []int          // number of sequences that have each step; never increases
	// Sorted is the original index of each packed sequence. It is nil if packing did not change the
	// order.
	Sorted   []int
	Unsorted []int // packed index of each original sequence; nil if Sorted is nil
}

// Lengths returns the length of each sequence, in the original order.
func (p *PackedSequence) Lengths() []int {
	p.check("lengths")
	out := make([]int, p.BatchSizes[0])
	for _, n := range p.BatchSizes {
		for i := range n {
			out[p.original(i)]++
		}
	}
	return out
}

// original returns the index that the i-th packed sequence had before packing.
func (p *PackedSequence) original(i int) int {
	if p.Sorted == nil {
		return i
	}
	return p.Sorted[i]
}

// check raises an error if the fields contradict each other. This can happen because they are
// exported.
func (p *PackedSequence) check(op string) {
	requireUsable(op, p.Data)
	if len(p.BatchSizes) == 0 {
		misuse(op, tensor.ErrValue, "the packed sequence has no step", p.Data)
	}
	rows := 0
	for i, n := range p.BatchSizes {
		if n < 1 || i > 0 && n > p.BatchSizes[i-1] {
			misuse(op, tensor.ErrValue, fmt.Sprintf("sizes of steps are positive and do not grow: %v", p.BatchSizes), p.Data)
		}
		rows += n
	}
	if p.Data.Rank() == 0 || p.Data.Dim(0) != rows {
		misuse(op, tensor.ErrShape, fmt.Sprintf("steps of sizes %v need %d rows, the data has shape %v", p.BatchSizes, rows, p.Data.Shape()), p.Data)
	}
	if p.Sorted == nil && p.Unsorted == nil {
		return
	}
	n := p.BatchSizes[0]
	ok := len(p.Sorted) == n && len(p.Unsorted) == n
	for i := 0; ok && i < n; i++ {
		s := p.Sorted[i]
		ok = s >= 0 && s < n && p.Unsorted[s] == i
	}
	if !ok {
		misuse(op, tensor.ErrValue, fmt.Sprintf("Sorted and Unsorted are orders of %d sequences that undo each other, not %v and %v", n, p.Sorted, p.Unsorted), p.Data)
	}
}

// indexOf returns order as an int64 tensor on x's device.
func indexOf(c *tensor.Scope, x *tensor.Tensor, order []int) *tensor.Tensor {
	v := make([]int64, len(order))
	for i, k := range order {
		v[i] = int64(k)
	}
	return c.On(x.Device()).From(v)
}

// PackOptions are the options of [PackPaddedSequence].
type PackOptions struct {
	BatchFirst bool // sequences are [n, length, …] instead of [length, n, …]
	Unsorted   bool // the lengths may be in any order: torch's enforce_sorted=False
}

// PackPaddedSequence packs n padded sequences x, [length, n, …], and drops the padding. The
// argument lengths has the length of each sequence without padding. Unless o.Unsorted is set,
// lengths must not increase. A length that is not positive or exceeds the number of steps of x is
// an error.
func PackPaddedSequence(x *tensor.Tensor, lengths []int, o PackOptions) *PackedSequence {
	const op = "pack_padded_sequence"
	requireUsable(op, x)
	if x.Rank() < 2 {
		misuse(op, tensor.ErrShape, fmt.Sprintf("padded sequences are [length, n, …], the shape is %v", x.Shape()), x)
	}
	steps, n := x.Dim(0), x.Dim(1)
	if o.BatchFirst {
		steps, n = n, steps
	}
	if len(lengths) != n || n == 0 {
		misuse(op, tensor.ErrValue, fmt.Sprintf("%d lengths for %d sequences; is BatchFirst what was meant?", len(lengths), n), x)
	}
	order := make([]int, n)
	for i, l := range lengths {
		if order[i] = i; l < 1 || l > steps {
			misuse(op, tensor.ErrValue, fmt.Sprintf("sequence %d has length %d, lengths lie between 1 and the %d steps of the input", i, l, steps), x)
		}
	}
	p := &PackedSequence{}
	if o.Unsorted {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(lengths[b], lengths[a]) })
		p.Sorted, p.Unsorted = order, make([]int, n)
		for i, k := range order {
			p.Unsorted[k] = i
		}
	} else if i := firstLonger(lengths); i > 0 {
		hinted(op, tensor.ErrValue, fmt.Sprintf("sequence %d has length %d, the one before %d: lengths must not grow", i, lengths[i], lengths[i-1]), "use PackOptions{Unsorted: true}", x)
	}
	p.BatchSizes = sizesOf(lengths)
	var rows []int
	for t, size := range p.BatchSizes {
		for _, b := range order[:size] {
			if o.BatchFirst {
				rows = append(rows, b*steps+t)
			} else {
				rows = append(rows, t*n+b)
			}
		}
	}
	p.Data = runInChild(x.Scope(), func(c *tensor.Scope) *tensor.Tensor {
		return x.In(c).Flatten(0, 1).IndexSelect(0, indexOf(c, x, rows))
	})
	return p
}

// firstLonger returns the index of the first sequence that is longer than the sequence before it,
// or 0 if there is none.
func firstLonger(lengths []int) int {
	for i := 1; i < len(lengths); i++ {
		if lengths[i] > lengths[i-1] {
			return i
		}
	}
	return 0
}

// sizesOf returns, for each step, the number of sequences that have this step.
func sizesOf(lengths []int) []int {
	sizes := make([]int, slices.Max(lengths))
	for _, l := range lengths {
		for t := range l {
			sizes[t]++
		}
	}
	return sizes
}

// PadOptions are the options of [PadPackedSequence] and [PadSequence].
type PadOptions struct {
	BatchFirst bool    // sequences are [n, length, …] instead of [length, n, …]
	Value      float64 // value of the padding's elements
	// Length is the number of steps of the result, torch's total_length. It must be at least the
	// greatest length, and 0 means the greatest length.
	Length int
	Left   bool // puts the padding before the sequences; only for [PadSequence]
}

// PadPackedSequence undoes [PackPaddedSequence]. It returns the sequences, [length, n, …], padded
// with o.Value, and their lengths, both in the original order.
func PadPackedSequence(p *PackedSequence, o PadOptions) (x *tensor.Tensor, lengths []int) {
	const op = "pad_packed_sequence"
	if p == nil {
		misuse(op, tensor.ErrValue, "the packed sequence is nil")
	}
	p.check(op)
	if o.Left {
		misuse(op, tensor.ErrValue, "packed sequences are padded behind", p.Data)
	}
	steps := padTo(op, o, len(p.BatchSizes), p.Data)
	n := p.BatchSizes[0]
	var rows []int
	for t, size := range p.BatchSizes {
		for i := range size {
			rows = append(rows, placeOf(o, t, p.original(i), steps, n))
		}
	}
	return spread(p.Data, rows, o, steps, n), p.Lengths()
}

// PadSequence joins sequences, [length, …], into one padded tensor, [longest, n, …]. The sequences
// must have the same type, and must differ only in their lengths.
func PadSequence(list []*tensor.Tensor, o PadOptions) *tensor.Tensor {
	const op = "pad_sequence"
	longest := checkSequences(op, list)
	steps := padTo(op, o, longest, list[0])
	var rows []int
	for b, x := range list {
		for t := range x.Dim(0) {
			if o.Left {
				t += steps - x.Dim(0)
			}
			rows = append(rows, placeOf(o, t, b, steps, len(list)))
		}
	}
	return spread(tensor.Cat(0, list...), rows, o, steps, len(list))
}

// PackSequence packs sequences, [length, …]. Their lengths must not increase, unless the argument
// unsorted is true.
func PackSequence(list []*tensor.Tensor, unsorted bool) *PackedSequence {
	const op = "pack_sequence"
	checkSequences(op, list)
	lengths := make([]int, len(list))
	for i, x := range list {
		lengths[i] = x.Dim(0)
	}
	x := PadSequence(list, PadOptions{})
	p := PackPaddedSequence(x, lengths, PackOptions{Unsorted: unsorted})
	x.Free()
	return p
}

// UnpadSequence undoes [PadSequence]. It returns views of x with the given lengths. The padding
// must be after the sequences.
func UnpadSequence(x *tensor.Tensor, lengths []int, batchFirst bool) []*tensor.Tensor {
	const op = "unpad_sequence"
	requireUsable(op, x)
	if x.Rank() < 2 {
		misuse(op, tensor.ErrShape, fmt.Sprintf("padded sequences are [length, n, …], the shape is %v", x.Shape()), x)
	}
	n, steps := 1, 0
	if batchFirst {
		n, steps = 0, 1
	}
	if len(lengths) != x.Dim(n) {
		misuse(op, tensor.ErrValue, fmt.Sprintf("%d lengths for %d sequences", len(lengths), x.Dim(n)), x)
	}
	out := make([]*tensor.Tensor, len(lengths))
	for i, l := range lengths {
		if l < 0 || l > x.Dim(steps) {
			misuse(op, tensor.ErrValue, fmt.Sprintf("sequence %d has length %d, there are %d steps", i, l, x.Dim(steps)), x)
		}
		out[i] = x.Select(n, i).Narrow(0, 0, l)
	}
	return out
}

// checkSequences checks the sequences' shapes and returns the greatest length.
func checkSequences(op string, list []*tensor.Tensor) int {
	if len(list) == 0 {
		misuse(op, tensor.ErrValue, "there are no sequences")
	}
	requireUsable(op, list...)
	longest := 0
	for i, x := range list {
		if x.Rank() == 0 || x.Rank() != list[0].Rank() || x.Shape().Tail(1) != list[0].Shape().Tail(1) {
			misuse(op, tensor.ErrShape, fmt.Sprintf("sequences are [length, …] and differ in the length alone; number %d has shape %v, the first %v", i, x.Shape(), list[0].Shape()), list[0], x)
		}
		longest = max(longest, x.Dim(0))
	}
	return longest
}

// padTo returns the number of steps of a padded result. longest is the greatest length.
func padTo(op string, o PadOptions, longest int, x *tensor.Tensor) int {
	if o.Length != 0 && o.Length < longest {
		misuse(op, tensor.ErrValue, fmt.Sprintf("the longest sequence has %d steps, Length is %d", longest, o.Length), x)
	}
	return max(longest, o.Length)
}

// placeOf returns the row index of step t of sequence b in a padded tensor of n sequences.
func placeOf(o PadOptions, t, b, steps, n int) int {
	if o.BatchFirst {
		return b*steps + t
	}
	return t*n + b
}

// spread returns a padded tensor. Its row rows[i] is row i of data, and all other rows are padding.
func spread(data *tensor.Tensor, rows []int, o PadOptions, steps, n int) *tensor.Tensor {
	return runInChild(data.Scope(), func(c *tensor.Scope) *tensor.Tensor {
		dims := data.Shape().Slice()
		dims[0] = steps * n
		y := c.On(data.Device()).Typed(data.Type()).Full(o.Value, dims...)
		y = y.IndexCopy(0, indexOf(c, data, rows), data)
		if o.BatchFirst {
			return y.Unflatten(0, n, steps)
		}
		return y.Unflatten(0, steps, n)
	})
}
