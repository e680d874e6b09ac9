package dist

import (
	"fmt"
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// Group is a set of ranks of a [Run]: torch.distributed's process group. Each rank has its own
// value of type Group. Only that rank may use the value, on one goroutine at a time.
type Group struct {
	core *core
	rank int
	gen  *tensor.Generator

	clones   []*Group // clones of this group that reducers have made
	reducers []*Reducer
	gone     error // this rank's error in the last step that the rank made void
}

// Rank returns this rank's number in the group, counted from 0.
func (g *Group) Rank() int {
	g.member("rank")
	return g.rank
}

// World returns how many ranks the group has.
func (g *Group) World() int {
	g.member("world")
	return len(g.core.members)
}

// Device returns this rank's device.
func (g *Group) Device() device.Device {
	g.member("device")
	return g.core.devices[g.rank]
}

// Devices returns the devices of all ranks of the group.
func (g *Group) Devices() []device.Device {
	g.member("devices")
	return slices.Clone(g.core.devices)
}

// Generator returns this rank's random generator. The option [Seed] sets its seed.
func (g *Group) Generator() *tensor.Generator {
	g.member("generator")
	return g.gen
}

// Backend returns the name of the implementation that moves the data: "in-process" or "nccl".
func (g *Group) Backend() string {
	g.member("backend")
	return g.core.comm.Name()
}

// Options returns the options of this rank's scopes: its device and its generator. Use them for
// scopes that other packages open, such as data.Loader.Steps.
func (g *Group) Options() []tensor.Option {
	return []tensor.Option{tensor.On(g.Device()), tensor.WithGenerator(g.gen)}
}

// New opens a scope with [Group.Options].
func (g *Group) New(opts ...tensor.Option) *tensor.Scope {
	return tensor.NewScope(append(g.Options(), opts...)...)
}

// Do opens a scope with [Group.Options] and opts, runs f with it, and closes it.
func (g *Group) Do(f func(s *tensor.Scope), opts ...tensor.Option) {
	tensor.Do(f, append(g.Options(), opts...)...)
}

// String returns a text such as "rank 1 of 2 on cuda:1".
func (g *Group) String() string {
	return fmt.Sprintf("rank %d of %d on %s", g.rank, g.World(), g.Device().Name())
}

// Err returns the failure that has ended the run. It returns nil while the run goes on.
func (g *Group) Err() error {
	g.member("err")
	select {
	case <-g.core.world.failed:
		return g.core.world.aborted()
	default:
		return nil
	}
}

// Split divides g into new groups. The ranks that pass the same color form a new group, in which
// they are sorted by key and then by rank in g. A rank with a negative color gets nil. All ranks of
// g call Split.
func (g *Group) Split(color, key int) *Group { return g.split("split", color, key) }

func (g *Group) split(op string, color, key int) *Group {
	type place struct{ color, key int }
	made := g.exchange(op, place{color, key}, func(values []any) (any, error) {
		by := map[int][]int{}
		for r, v := range values {
			if p := v.(place); p.color >= 0 {
				by[p.color] = append(by[p.color], r)
			}
		}
		groups := make([]*Group, len(values))
		for _, ranks := range by {
			slices.SortStableFunc(ranks, func(a, b int) int { return values[a].(place).key - values[b].(place).key })
			members := make([]int, len(ranks))
			for i, r := range ranks {
				members[i] = g.core.members[r]
			}
			c, err := g.core.world.newCore(members)
			if err != nil {
				return nil, err
			}
			for i, r := range ranks {
				groups[r] = &Group{core: c, rank: i}
			}
		}
		return groups, nil
	})
	sub := made[0].([]*Group)[g.rank]
	if sub != nil {
		sub.gen = g.gen
	}
	return sub
}

// Sub returns a group of the given ranks of g, in the order of the arguments. All ranks of g call
// Sub with the same arguments. A rank that is not among them gets nil.
func (g *Group) Sub(ranks ...int) *Group {
	for i, r := range ranks {
		if r < 0 || r >= g.World() || slices.Index(ranks, r) < i {
			panic(g.misuse("sub-group", tensor.ErrValue, fmt.Sprintf("%v are no different ranks of %d", ranks, g.World())))
		}
	}
	op := fmt.Sprintf("sub-group %v", ranks)
	if i := slices.Index(ranks, g.rank); i >= 0 {
		return g.split(op, 0, i)
	}
	return g.split(op, -1, 0)
}

// Clone returns another group of the same ranks. Collectives of the clone and of g may be called in
// any order relative to each other. All ranks call Clone.
func (g *Group) Clone() *Group {
	g.member("clone")
	return g.split("clone", 0, g.rank)
}

// member panics if the group is nil. A nil group means that this rank is not a member.
func (g *Group) member(op string) {
	if g == nil {
		k := &call{}
		k.trace()
		panic(&Error{Op: op, Msg: "this rank is not in the group: Split and Sub returned nil", Site: k.site(), Err: ErrMember})
	}
}

// misuse returns the error for a wrong call of op.
func (g *Group) misuse(op string, kind error, msg string) *Error {
	k := &call{rank: g.rank, what: signature{op: op}}
	k.trace()
	return g.core.fault(g.rank, kind, k, msg)
}
