package dist

import (
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// partition says which rank changes which elements. It divides the parameters into spaces, and each
// space among the ranks. The trained parameters of one type form a space. Parameters of that
// type that were frozen when the partition was made form another space. The ranks thus get
// equal shares of the trained and of the frozen parameters. Parameters that are not contiguous
// cannot be cut, so they are in separate spaces.
type partition struct {
	members []member
	spaces  []*space
}

// space is a group of parameters of one type. They are divided among the ranks, and copied to all
// ranks, together.
type space struct {
	typ    dtype.Type
	frozen bool
	dense  bool
	ranks  [][]stretch // for each rank, the elements that it changes
	width  int         // largest number of elements that one rank changes
}

// stretch is a range of elements of a parameter.
type stretch struct {
	param int
	part  optim.Part
}

func (r stretch) size() int { return r.part.To - r.part.From }

// grain is a number of elements. A cut within a parameter is at a multiple of grain. Kernels can
// then use wide loads.
const grain = 64

// newPartition divides the parameters among the ranks. If splits is true, it may cut within
// parameters.
func newPartition(members []member, world int, splits bool) *partition {
	p := &partition{members: members}
	type kind struct {
		typ    dtype.Type
		frozen bool
		dense  bool
	}
	by := map[kind]*space{}
	lists := map[*space][]int{}
	for i, m := range members {
		k := kind{m.typ, m.frozen, m.dense}
		sp := by[k]
		if sp == nil {
			sp = &space{typ: m.typ, frozen: m.frozen, dense: m.dense, ranks: make([][]stretch, world)}
			by[k], p.spaces = sp, append(p.spaces, sp)
		}
		lists[sp] = append(lists[sp], i)
	}
	load := make([]int, world) // for each rank, the number of bytes that it has so far
	for _, sp := range p.spaces {
		if splits && sp.dense {
			sp.cut(members, lists[sp])
		} else {
			sp.deal(members, lists[sp], load)
		}
		for _, runs := range sp.ranks {
			n := 0
			for _, r := range runs {
				n += r.size()
			}
			sp.width = max(sp.width, n)
		}
	}
	return p
}

// cut concatenates the parameters and cuts them into ranges, one for each rank. The lengths are as
// equal as multiples of the grain allow.
func (sp *space) cut(members []member, list []int) {
	total := 0
	for _, i := range list {
		total += members[i].shape.Size()
	}
	world := len(sp.ranks)
	rank, before := 0, 0 // before is the number of elements before the current parameter
	for _, i := range list {
		n := members[i].shape.Size()
		from := 0
		for rank < world-1 {
			end := (rank + 1) * total / world // end of the rank's range before rounding
			if end > before+n || n == 0 {
				break
			}
			at := max(from, nearest(end-before, n))
			if at > from {
				sp.ranks[rank] = append(sp.ranks[rank], stretch{i, optim.Part{From: from, To: at}})
			}
			from = at
			rank++
		}
		if from < n || n == 0 {
			sp.ranks[rank] = append(sp.ranks[rank], stretch{i, optim.Part{From: from, To: n}})
		}
		before += n
	}
}

// nearest returns the permitted cut nearest to position. The permitted cuts are n and the multiples
// of the grain from 0 to n.
func nearest(position, n int) int {
	low := position / grain * grain
	high := min(low+grain, n)
	if position-low <= high-position {
		return low
	}
	return high
}

// deal gives each whole parameter to one rank. It takes the largest parameter first, and gives each
// to the rank with the fewest bytes so far.
func (sp *space) deal(members []member, list []int, load []int) {
	size := func(i int) int { return members[i].shape.Size() }
	order := slices.Clone(list)
	slices.SortStableFunc(order, func(a, b int) int { return size(b) - size(a) })
	for _, i := range order {
		r := slices.Index(load, slices.Min(load))
		load[r] += size(i) * sp.typ.Size()
		sp.ranks[r] = append(sp.ranks[r], stretch{i, optim.Part{To: size(i)}})
	}
}

// parts returns the parts of the parameters that the given rank changes.
func (p *partition) parts(rank int, params []*tensor.Tensor) map[*tensor.Tensor]optim.Part {
	parts := map[*tensor.Tensor]optim.Part{}
	for _, sp := range p.spaces {
		for _, r := range sp.ranks[rank] {
			parts[params[r.param]] = r.part
		}
	}
	return parts
}
