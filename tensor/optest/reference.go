package optest

import "math"

// The reference of a heavy op is a plain implementation of its definition.

func matmulRef(x []array) array {
	a, b := x[0], x[1]
	da, db := a.dims, b.dims
	if len(da) == 1 {
		a = a.reshape(1, da[0])
	}
	if len(db) == 1 {
		b = b.reshape(db[0], 1)
	}
	m, k, n := a.dims[len(a.dims)-2], a.dims[len(a.dims)-1], b.dims[len(b.dims)-1]
	batch := joint(newArray(a.dims[:len(a.dims)-2]...), newArray(b.dims[:len(b.dims)-2]...))
	a, b = a.expand(append(append([]int(nil), batch...), m, k)), b.expand(append(append([]int(nil), batch...), k, n))
	y := newArray(append(append([]int(nil), batch...), m, n)...)
	for p := range size(batch) {
		for i := range m {
			for j := range n {
				for q := range k {
					y.v[(p*m+i)*n+j] += a.v[(p*m+i)*k+q] * b.v[(p*k+q)*n+j]
				}
			}
		}
	}
	out := append([]int(nil), batch...)
	if len(da) > 1 {
		out = append(out, m)
	}
	if len(db) > 1 {
		out = append(out, n)
	}
	return y.reshape(out...)
}

// linearRef computes x·wᵀ + b, or x·w + b if byInputs. The bias b is optional.
func linearRef(byInputs bool) func(x []array) array {
	return func(x []array) array {
		w := x[1]
		if !byInputs {
			w = w.permute([]int{1, 0})
		}
		y := matmulRef([]array{x[0], w})
		if len(x) > 2 {
			b := x[2].expand(y.dims)
			for i := range y.v {
				y.v[i] += b.v[i]
			}
		}
		return y
	}
}

// siluOf returns silu of the result of ref.
func siluOf(ref func(x []array) array) func(x []array) array {
	return func(x []array) array {
		return ref(x).apply(func(v float64) float64 { return v / (1 + math.Exp(-v)) })
	}
}

func softmaxRef(dim int, log bool) func(x []array) array {
	return func(x []array) array {
		p, _ := softmax(x[0], dim)
		if log {
			return p.apply(math.Log)
		}
		return p
	}
}

// softmax returns the probabilities along dim. For each element it also returns the distance to the
// greatest element of its row, or 0 if that distance is infinite.
func softmax(x array, dim int) (p, below array) {
	p, below = newArray(x.dims...), newArray(x.dims...)
	if len(x.dims) == 0 {
		p.v[0] = 1
		return p, below
	}
	rows := append([]int(nil), x.dims...)
	rows[(dim+len(rows))%len(rows)] = 1
	maxima, sum := newArray(rows...).apply(func(float64) float64 { return math.Inf(-1) }), newArray(rows...)
	each(x.dims, func(i int, idx []int) {
		r := sum.offset(idx)
		maxima.v[r] = math.Max(maxima.v[r], x.v[i])
	})
	each(x.dims, func(i int, idx []int) {
		p.v[i] = math.Exp(x.v[i] - maxima.v[sum.offset(idx)])
		sum.v[sum.offset(idx)] += p.v[i]
	})
	each(x.dims, func(i int, idx []int) {
		p.v[i] /= sum.v[sum.offset(idx)]
		if d := maxima.v[sum.offset(idx)] - x.v[i]; d < math.Inf(1) {
			below.v[i] = d
		}
	})
	return p, below
}

// crossRef computes the loss of each row. The loss of a row is 0 if its class is ignore.
func crossRef(ignore int) func(x []array) array {
	return func(x []array) array {
		p, _ := softmax(x[0], 1)
		y := newArray(x[1].dims...)
		for i, c := range x[1].v {
			if int(c) != ignore {
				y.v[i] = -math.Log(p.at(i, int(c)))
			}
		}
		return y
	}
}

func gatherRef(axis int) func(x []array) array {
	return func(x []array) array {
		y := newArray(x[1].dims...)
		each(y.dims, func(i int, idx []int) {
			from := append([]int(nil), idx...)
			from[axis] = int(x[1].v[i])
			y.v[i] = x[0].at(from...)
		})
		return y
	}
}

func scatterRef(axis int) func(x []array) array {
	return func(x []array) array {
		y := x[0].clone()
		each(x[1].dims, func(i int, idx []int) {
			to := append([]int(nil), idx...)
			to[axis] = int(x[1].v[i])
			y.v[y.offset(to)] += x[2].v[i]
		})
		return y
	}
}

// selectRef selects entries of an axis by an index of any shape. The index's shape replaces the
// axis.
func selectRef(axis int) func(x []array) array {
	return func(x []array) array {
		a, index := x[0], x[1]
		dims := append(append(append([]int(nil), a.dims[:axis]...), index.dims...), a.dims[axis+1:]...)
		y := newArray(dims...)
		n := len(index.dims)
		each(dims, func(i int, idx []int) {
			from := append([]int(nil), idx[:axis]...)
			from = append(from, int(index.at(idx[axis:axis+n]...)))
			y.v[i] = a.at(append(from, idx[axis+n:]...)...)
		})
		return y
	}
}

func catRef(axis int) func(x []array) array {
	return func(x []array) array {
		dims := append([]int(nil), x[0].dims...)
		for _, a := range x[1:] {
			dims[axis] += a.dims[axis]
		}
		y := newArray(dims...)
		each(dims, func(i int, idx []int) {
			from := append([]int(nil), idx...)
			k := 0
			for ; from[axis] >= x[k].dims[axis]; k++ {
				from[axis] -= x[k].dims[axis]
			}
			y.v[i] = x[k].at(from...)
		})
		return y
	}
}

func gluRef(dim int) func(x []array) array {
	return func(x []array) array {
		d := (dim + len(x[0].dims)) % len(x[0].dims)
		n := x[0].dims[d] / 2
		y, gate := x[0].narrow(d, 0, n), x[0].narrow(d, n, n)
		for i := range y.v {
			y.v[i] /= 1 + math.Exp(-gate.v[i])
		}
		return y
	}
}
