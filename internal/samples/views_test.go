package samples

import (
	"slices"

	"github.com/flambeau-go/flambeau/tensor"
)

// views holds adapters of operators that rearrange elements. torch's variants that copy (…_copy)
// return the same values.
var views = map[string]call{
	"broadcast_to": func(a *args) any { return a.x().BroadcastTo(a.ints(1, "size")...) },
	"expand":       func(a *args) any { return a.x().Expand(a.intArgs(1, "size")...) },
	"expand_copy":  func(a *args) any { return a.x().Expand(a.intArgs(1, "size")...).Clone() },
	"expand_as":    func(a *args) any { return a.x().Expand(a.T(1, "other").Shape().Slice()...) },
	"chunk": func(a *args) any {
		return a.x().Chunk(a.int(1, "chunks", 1), a.int(2, "dim",
			0))
	},
	"unsafe_chunk": func(a *args) any {
		return a.x().Chunk(a.int(1, "chunks", 1), a.int(2, "dim", 0))
	},
	"split": splits, "split.list_args": splits, "unsafe_split": splits, "split_with_sizes": splits,
	"split_with_sizes_copy": splits,
	"unbind":                func(a *args) any { return a.x().Unbind(a.int(1, "dim", 0)) },
	"unbind_copy":           func(a *args) any { return a.x().Unbind(a.int(1, "dim", 0)) },
	"tensor_split": func(a *args) any {
		return tensorSplit(a.x(), a.arg(1, "indices_or_sections"), a.int(2, "dim", 0))
	},
	"hsplit": func(a *args) any {
		x := a.x()
		if x.Rank() == 0 {
			panic(wrong("no dimension"))
		}
		return tensorSplit(x, evenly(x, a.arg(1, "indices_or_sections"), min(1, x.Rank()-1)),
			min(1, x.Rank()-1))
	},
	"vsplit": func(a *args) any {
		if a.x().Rank() < 2 {
			panic(wrong("fewer than two dimensions"))
		}
		return tensorSplit(a.x(), evenly(a.x(), a.arg(1, "indices_or_sections"), 0), 0)
	},
	"dsplit": func(a *args) any {
		if a.x().Rank() < 3 {
			panic(wrong("fewer than three dimensions"))
		}
		return tensorSplit(a.x(), evenly(a.x(), a.arg(1, "indices_or_sections"), 2), 2)
	},
	"diag": func(a *args) any { return a.x().Diag(a.int(1, "diagonal", 0)) },
	"diag_embed": func(a *args) any {
		return a.x().DiagEmbed(a.int(1, "offset", 0), a.int(2, "dim1", -2), a.int(3, "dim2", -1))
	},
	"diagonal": diagonals(0, 1), "diagonal_copy": diagonals(0, 1),
	"linalg.diagonal": diagonals(-2, -1),
	"diagflat": func(a *args) any {
		return a.x().Flatten(0, -1).DiagEmbed(a.int(1, "offset", 0),
			0, 1)
	},
	"tril":   func(a *args) any { return a.x().Tril(a.int(1, "diagonal", 0)) },
	"triu":   func(a *args) any { return a.x().Triu(a.int(1, "diagonal", 0)) },
	"flip":   func(a *args) any { return a.x().Flip(a.intArgs(1, "dims")...) },
	"fliplr": un(func(x T) T { return x.Flip(1) }),
	"flipud": un(func(x T) T {
		if x.Rank() == 0 {
			panic(wrong("no dimension"))
		}
		return x.Flip(0)
	}),
	"roll": func(a *args) any {
		x, shifts, dims := a.x(), a.ints(1, "shifts"), a.ints(2, "dims")
		if len(dims) == 0 {
			if len(shifts) != 1 {
				panic(wrong("several shifts and no dimension"))
			}
			return x.Flatten(0, -1).Roll(shifts, []int{0}).Reshape(x.Shape().Slice()...)
		}
		return x.Roll(shifts, dims)
	},
	"rot90": func(a *args) any {
		x, k, d := a.x(), (a.int(1, "k", 1)%4+4)%4, a.ints(2, "dims")
		if !a.has(2, "dims") {
			d = []int{0, 1}
		}
		if len(d) != 2 || d[0] == d[1] {
			panic(wrong("not two dimensions"))
		}
		for range k {
			x = x.Transpose(d[0], d[1]).Flip(d[0])
		}
		return x
	},
	"permute":      func(a *args) any { return a.x().Permute(a.intArgs(1, "dims")...) },
	"permute_copy": func(a *args) any { return a.x().Permute(a.intArgs(1, "dims")...).Clone() },
	"transpose":    transposes, "transpose_copy": transposes,
	"t": oldT, "t_copy": oldT, "T": un(func(x T) T {
		if x.Rank() != 2 {
			lacks("the transposition of what is not a matrix")
		}
		return x.Transpose(0, 1)
	}),
	"mT": un(T.T), "mH": un(T.T),
	"H": un(func(x T) T {
		if x.Rank() != 2 {
			panic(wrong("not a matrix"))
		}
		return x.T()
	}),
	"movedim": func(a *args) any {
		from, to := a.ints(1, "source"), a.ints(2, "destination")
		return a.x().MoveAxes(from, to)
	},
	"narrow": narrows, "narrow_copy": narrows,
	"select": func(a *args) any { return a.x().Select(a.int(1, "dim", 0), a.int(2, "index", 0)) },
	"slice": func(a *args) any {
		return a.x().Slice(a.int(1, "dim", 0), a.int(2, "start", 0), a.int(3, "end", tensor.End),
			a.int(4, "step", 1))
	},
	"squeeze": squeezes, "squeeze.multiple": squeezes, "squeeze_copy": squeezes,
	"unsqueeze":      func(a *args) any { return a.x().Unsqueeze(a.int(1, "dim", 0)) },
	"unsqueeze_copy": func(a *args) any { return a.x().Unsqueeze(a.int(1, "dim", 0)).Clone() },
	"reshape":        func(a *args) any { return a.x().Reshape(a.intArgs(1, "shape")...) },
	"reshape_as": func(a *args) any {
		return a.x().Reshape(a.T(1,
			"other").Shape().Slice()...)
	},
	"view":      func(a *args) any { return a.x().View(a.intArgs(1, "size")...) },
	"view_copy": func(a *args) any { return a.x().View(a.intArgs(1, "size")...).Clone() },
	"view_as":   func(a *args) any { return a.x().View(a.T(1, "other").Shape().Slice()...) },
	"ravel":     un(func(x T) T { return x.Flatten(0, -1) }),
	"flatten": func(a *args) any {
		return a.x().Flatten(a.int(1, "start_dim", 0), a.int(2, "end_dim", -1))
	},
	"unflatten": func(a *args) any {
		return a.x().Unflatten(a.int(1, "dim", 0), a.ints(2,
			"sizes")...)
	},
	"as_strided": strides, "as_strided.partial_views": strides, "as_strided_copy": strides,
	"unfold": func(a *args) any {
		return a.x().Unfold(a.int(1, "dimension", 0), a.int(2, "size", 0), a.int(3, "step", 1))
	},
	"unfold_copy": func(a *args) any {
		return a.x().Unfold(a.int(1, "dimension", 0), a.int(2, "size", 0), a.int(3, "step",
			1)).Clone()
	},
	"repeat": func(a *args) any { return a.x().Repeat(a.intArgs(1, "repeats")...) },
	"tile":   func(a *args) any { return a.x().Tile(a.intArgs(1, "dims")...) },
	"repeat_interleave": func(a *args) any {
		x, dim := a.x(), 0
		if !a.has(2, "dim") {
			x = x.Flatten(0, -1)
		} else {
			dim = a.int(2, "dim", 0)
		}
		a.ignored("output_size")
		if n, ok := a.arg(1, "repeats").(T); ok {
			return x.RepeatInterleaveBy(n, dim)
		}
		return x.RepeatInterleave(a.int(1, "repeats", 1), dim)
	},
	"constant_pad_nd": func(a *args) any {
		return a.x().Pad(a.float(2, "value", 0),
			a.ints(1, "pad")...)
	},
	"nn.functional.pad.constant": pads, "nn.functional.pad.reflect": pads,
	"nn.functional.pad.replicate": pads, "nn.functional.pad.replicate_negative": pads,
	"nn.functional.pad.circular": pads,
	"nn.functional.pixel_shuffle": func(a *args) any {
		return a.x().PixelShuffle(a.int(1, "upscale_factor", 0))
	},
	"nn.functional.pixel_unshuffle": func(a *args) any {
		return a.x().PixelUnshuffle(a.int(1, "downscale_factor", 0))
	},
	"nn.functional.channel_shuffle": func(a *args) any {
		return a.x().ChannelShuffle(a.int(1, "groups", 0))
	},
}

var moreViews = map[string]call{
	"diagonal_scatter": func(a *args) any {
		y := a.x().Clone()
		y.Diagonal(a.int(2, "offset", 0), a.int(3, "dim1", 0), a.int(4, "dim2", 1)).Copy(a.T(1,
			"src"))
		return y
	},
	"select_scatter": func(a *args) any {
		y := a.x().Clone()
		y.Select(a.int(2, "dim", 0), a.int(3, "index", 0)).Copy(a.T(1, "src"))
		return y
	},
	"slice_scatter": func(a *args) any {
		y := a.x().Clone()
		y.Slice(a.int(2, "dim", 0), a.int(3, "start", 0), a.int(4, "end", tensor.End),
			a.int(5, "step", 1)).Copy(a.T(1, "src"))
		return y
	},
	"as_strided_scatter": func(a *args) any {
		y := a.x().Clone().Contiguous()
		y.AsStrided(a.ints(2, "size"), a.ints(3, "stride"), a.int(4, "storage_offset", 0)).
			Copy(a.T(1, "src"))
		return y
	},
	"atleast_1d": eachTensor(func(x T) T {
		if x.Rank() == 0 {
			return x.Unsqueeze(0)
		}
		return x
	}),
	"atleast_2d": eachTensor(atleast2),
	"atleast_3d": eachTensor(func(x T) T {
		if x = atleast2(x); x.Rank() == 2 {
			return x.Unsqueeze(2)
		}
		return x
	}),
	"fft.fftshift":  func(a *args) any { return shifted(a, func(n int) int { return n / 2 }) },
	"fft.ifftshift": func(a *args) any { return shifted(a, func(n int) int { return -(n / 2) }) },
	"broadcast_tensors": func(a *args) any {
		list := a.list()
		dims := broadcast(list)
		var out []T
		for _, x := range list {
			out = append(out, x.BroadcastTo(dims...))
		}
		return out
	},
}

// eachTensor adapts f: it applies f to a tensor, or to each tensor of a list.
func eachTensor(f func(x T) T) call {
	return func(a *args) any {
		if x, ok := a.arg(0, "input").(T); ok && len(a.pos) == 1 {
			return f(x)
		}
		var out []T
		for _, x := range a.list() {
			out = append(out, f(x))
		}
		return out
	}
}

func atleast2(x T) T {
	for x.Rank() < 2 {
		x = x.Unsqueeze(0)
	}
	return x
}

func broadcast(list []T) (dims []int) {
	for _, x := range list {
		for i := range x.Rank() {
			for len(dims) < x.Rank() {
				dims = slices.Insert(dims, 0, 1)
			}
			if at := len(dims) - x.Rank() + i; dims[at] == 1 {
				dims[at] = x.Dim(i)
			}
		}
	}
	return dims
}

func shifted(a *args, by func(n int) int) any {
	x, dims := a.x(), a.ints(1, "dim")
	if dims == nil {
		for i := range x.Rank() {
			dims = append(dims, i)
		}
	}
	var shifts []int
	for _, d := range dims {
		shifts = append(shifts, by(x.Dim((d+x.Rank())%x.Rank())))
	}
	return x.Roll(shifts, dims)
}

var splits call = func(a *args) any {
	for _, name := range []string{"split_size_or_sections", "split_size", "split_sizes"} {
		switch v := a.arg(1, name).(type) {
		case nil:
		case int:
			return a.x().Split(v, a.int(2, "dim", 0))
		default:
			return a.x().SplitSizes(toInts(v), a.int(2, "dim", 0))
		}
	}
	panic(wrong("no sizes"))
}

// tensorSplit divides x along dim like numpy's array_split. The argument split is a list of
// indices, or a number of parts whose sizes differ by at most 1.
func tensorSplit(x T, split any, dim int) any {
	n := x.Dim((dim + x.Rank()) % max(x.Rank(), 1))
	var at []int
	switch v := split.(type) {
	case int:
		if v < 1 {
			panic(wrong("no parts"))
		}
		for i, end := 0, 0; i < v-1; i++ {
			end += n / v
			if i < n%v {
				end++
			}
			at = append(at, end)
		}
	case T:
		if v.Rank() == 0 {
			return tensorSplit(x, whole(v), dim)
		}
		for _, i := range v.Floats() {
			at = append(at, int(i))
		}
	default:
		at = toInts(v)
	}
	var out []T
	from := 0
	for _, to := range append(at, tensor.End) {
		out = append(out, x.Slice(dim, from, to, 1))
		from = to
	}
	return out
}

// evenly returns split. It refuses the call if split is a number of parts that does not divide the
// size of the dimension.
func evenly(x T, split any, dim int) any {
	if n, ok := split.(int); ok && (n < 1 || x.Dim(dim)%n != 0) {
		panic(wrong("parts of different sizes"))
	}
	return split
}

func diagonals(dim1, dim2 int) call {
	return func(a *args) any {
		return a.x().Diagonal(a.int(1, "offset", 0), a.int(2, "dim1", dim1), a.int(3, "dim2", dim2))
	}
}

var (
	transposes call = func(a *args) any {
		return a.x().Transpose(a.int(1, "dim0", 0), a.int(2, "dim1", 0))
	}
	oldT call = func(a *args) any {
		switch x := a.x(); {
		case x.Rank() > 2:
			panic(wrong("more than two dimensions"))
		case x.Rank() < 2:
			return x
		default:
			return x.Transpose(0, 1)
		}
	}
	narrows call = func(a *args) any {
		return a.x().Narrow(a.int(1, "dim", 0), a.int(2, "start", 0), a.int(3, "length", 0))
	}
	squeezes call = func(a *args) any {
		x := a.x()
		if d, ok := a.arg(1, "dim").(tuple); ok && len(d) == 0 {
			return x
		}
		return x.Squeeze(a.ints(1, "dim")...)
	}
	strides call = func(a *args) any {
		return a.x().AsStrided(a.ints(1, "size"), a.ints(2, "stride"), a.int(3, "storage_offset",
			0))
	}
	pads call = func(a *args) any {
		x, p := a.x(), a.ints(1, "pad")
		switch mode := a.text(2, "mode", "constant"); mode {
		case "reflect":
			return x.PadReflect(p...)
		case "replicate":
			return x.PadReplicate(p...)
		case "circular":
			return x.PadCircular(p...)
		case "constant":
			return x.Pad(a.float(3, "value", 0), p...)
		default:
			panic(wrong("mode " + mode))
		}
	}
)

// joins holds adapters of operators that combine several tensors.
var joins = map[string]call{
	"cat": func(a *args) any {
		return tensor.Cat(a.int(1, "dim", 0), tensors(a.arg(0,
			"tensors"))...)
	},
	"stack": func(a *args) any {
		return tensor.Stack(a.int(1, "dim", 0), tensors(a.arg(0, "tensors"))...)
	},
	"hstack": func(a *args) any { return tensor.HStack(tensors(a.arg(0, "tensors"))...) },
	"vstack": func(a *args) any { return tensor.VStack(tensors(a.arg(0, "tensors"))...) },
	"dstack": func(a *args) any {
		var list []T
		for _, x := range tensors(a.arg(0, "tensors")) {
			if x = atleast2(x); x.Rank() == 2 {
				x = x.Unsqueeze(2)
			}
			list = append(list, x)
		}
		return tensor.Cat(2, list...)
	},
	"column_stack": func(a *args) any {
		var list []T
		for _, x := range tensors(a.arg(0, "tensors")) {
			if x.Rank() < 2 {
				x = x.Reshape(-1, 1)
			}
			list = append(list, x)
		}
		return tensor.Cat(1, list...)
	},
	"meshgrid.variadic_tensors": grids, "meshgrid.list_of_tensors": grids,
	"block_diag": func(a *args) any {
		var rows []T
		at, wide := 0, 0
		list := a.list()
		for i, x := range list {
			list[i] = atleast2(x)
			wide += list[i].Dim(1)
		}
		for _, x := range list {
			rows = append(rows, x.Pad(0, at, wide-at-x.Dim(1)))
			at += x.Dim(1)
		}
		return tensor.Cat(0, rows...)
	},
	"cartesian_prod": func(a *args) any {
		list := a.list()
		if len(list) == 1 {
			return list[0]
		}
		var columns []T
		for _, x := range tensor.Meshgrid(list...) {
			columns = append(columns, x.Flatten(0, -1))
		}
		return tensor.Stack(1, columns...)
	},
}

var grids call = func(a *args) any {
	if a.text(-1, "indexing", "ij") == "xy" {
		return tensor.MeshgridXY(a.list()...)
	}
	return tensor.Meshgrid(a.list()...)
}
