package dist

import (
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A partition says which rank changes which elements. Parameters of one type that are trained
// are a space, and those that were frozen when it was made another, so that each is shared
// equally. So are those that are not contiguous, which cannot be cut.
type partition struct {
	members []member
	spaces  []*space
}

// A space is parameters that are gathered together.
type space struct {
	typ    dtype.Type
	frozen bool
	dense  bool
	ranks  [][]stretch // by rank, what it changes
	width  int         // the most elements of a rank
}

// A stretch is elements of a parameter.
type stretch struct {
	param int
	part  optim.Part
}

func (r stretch) size() int { return r.part.To - r.part.From }

// grain is of how many elements the runs within a parameter are multiples, so that kernels may
// use wide loads.
const grain = 64

// newPartition shares parameters, and where they can be split parts of them.
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
	load := make([]int, world) // bytes so far
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

// cut lays the parameters one behind the other and cuts them into equal runs, as near as the
// grain allows.
func (sp *space) cut(members []member, list []int) {
	total := 0
	for _, i := range list {
		total += members[i].shape.Size()
	}
	world := len(sp.ranks)
	rank, before := 0, 0 // elements before the parameter
	for _, i := range list {
		n := members[i].shape.Size()
		from := 0
		for rank < world-1 {
			end := (rank + 1) * total / world // where the rank's elements should end
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

// nearest is the multiple of the grain, or n, that is nearest to at, from 0 to n.
func nearest(at, n int) int {
	low := at / grain * grain
	high := min(low+grain, n)
	if at-low <= high-at {
		return low
	}
	return high
}

// deal gives each parameter, the largest first, to the rank that has the least so far.
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

// of returns what a rank changes.
func (p *partition) of(rank int, params []*tensor.Tensor) map[*tensor.Tensor]optim.Part {
	parts := map[*tensor.Tensor]optim.Part{}
	for _, sp := range p.spaces {
		for _, r := range sp.ranks[rank] {
			parts[params[r.param]] = r.part
		}
	}
	return parts
}
