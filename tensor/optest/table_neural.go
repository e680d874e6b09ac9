package optest

import (
	"math"

	"github.com/flambeau-go/flambeau/tensor"
)

func init() {
	rowTables = append(rowTables, crossEntropyRows)
	for _, name := range []string{"AlphaDropout", "FeatureAlphaDropout", "Dropout1d", "Dropout2d", "Dropout3d"} {
		noValue[name] = "random"
	}
}

// lossRef is the cross entropy of logits x[0] with classes in dimension 1 (0 of a vector): with the classes x[1], or with
// probabilities of x[0]'s shape, and weights x[2].
func lossRef(smoothing float64, ignore int) func(x []array) array {
	return func(x []array) array {
		dim := min(1, len(x[0].dims)-1)
		p, _ := softmax(x[0], dim)
		classes := x[0].dims[dim]
		out := append(append([]int(nil), x[0].dims[:dim]...), x[0].dims[dim+1:]...)
		weight := func(c int) float64 {
			if len(x) > 2 {
				return x[2].v[c]
			}
			return 1
		}
		return arrayOfFunc(out, func(i []int) float64 {
			full := append(append(append([]int(nil), i[:dim]...), 0), i[dim:]...)
			target := -1
			if len(x[1].dims) < len(x[0].dims) {
				if target = int(x[1].at(i...)); target == ignore {
					return 0
				}
			}
			loss := 0.0
			for c := range classes {
				full[dim] = c
				y := 0.0
				switch {
				case target < 0:
					y = x[1].at(full...)
				case target == c:
					y = 1
				}
				loss -= weight(c) * ((1-smoothing)*y + smoothing/float64(classes)) * math.Log(p.at(full...))
			}
			return loss
		})
	}
}

func crossEntropyRows() []row {
	var rows []row
	for _, c := range []struct {
		in        [][]int
		smoothing float64
		ignore    int
	}{
		{[][]int{{6, 5}, {6}, {5}}, 0, -100}, {[][]int{{6, 5}, {6}}, 0.2, 2}, {[][]int{{6, 5}, {6}, {5}}, 0.5, 3}, {[][]int{{2, 4, 3}, {2, 3}}, 0, 1}, {[][]int{{2, 3, 2, 2}, {2, 2, 2}, {3}}, 0.1, -1},
		{[][]int{{4}, {}, {4}}, 0.1, -100}, {[][]int{{0, 3}, {0}}, 0.1, -100},
		{[][]int{{4, 3}, {4, 3}}, 0, -100}, {[][]int{{2, 3, 2}, {2, 3, 2}, {3}}, 0.3, -100}, {[][]int{{3}, {3}}, 0.1, -100},
	} {
		r := row{op: "cross_entropy", methods: []string{"CrossEntropy"}, in: c.in, kernels: true, ref: lossRef(c.smoothing, c.ignore), rounds: true,
			call: func(x []*tt) *tt {
				o := tensor.CrossEntropyOptions{IgnoreIndex: &c.ignore, LabelSmoothing: c.smoothing}
				if len(x) > 2 {
					o.Weight = x[2]
				}
				return x[0].CrossEntropy(x[1], o)
			}}
		if len(c.in[1]) < len(c.in[0]) {
			r.index = map[int]int{1: c.in[0][min(1, len(c.in[0])-1)]}
		}
		r.terms = func(x []array) array { return r.ref(x).apply(func(v float64) float64 { return 8 + 8*math.Abs(v) }) }
		rows = append(rows, r)
	}
	return rows
}
