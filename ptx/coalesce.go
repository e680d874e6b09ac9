package ptx

import "slices"

// coalesceVariables removes copies of the registers of Vars. The result of Var.Get is a copy
// (snapshot). The pass drops a copy if the Var does not change before the copy's last use. The
// pass also replaces `t = op …; var = t` by `var = op …`.
func coalesceVariables(b *Builder) {
	c := &coalescer{round: 1}
	c.scan(b.entry, nil)
	c.scan(b.root, nil)
	c.snapshots(b.entry)
	c.snapshots(b.root)
	// Removing the copies has changed the uses of registers, so scan them again.
	c = &coalescer{round: 2}
	c.scan(b.entry, nil)
	c.scan(b.root, nil)
	c.results(b.root)
}

type coalescer struct {
	round int
	sets  map[*node]map[*register]bool
}

// usage holds what the coalescer knows about a register. It is a field of the register, because a
// map from registers to usages would take most of the time of building a kernel.
type usage struct {
	round   int     // number of the scan that set the fields below
	home    *region // region in which the register is defined
	lastUse int     // index in home of the last node that uses the register
	count   int     // number of uses
}

// usage returns the usage of r, as found in this scan.
func (c *coalescer) usage(r *register) *usage {
	if r.usage.round != c.round {
		r.usage = usage{round: c.round}
	}
	return &r.usage
}

type position struct {
	r     *region
	index int
}

// scan records the definitions and uses of registers in region r. The argument path lists the
// enclosing nodes.
func (c *coalescer) scan(r *region, path []position) {
	for i, n := range r.nodes {
		here := append(path, position{r, i})
		n.resolve()
		for _, inner := range n.regions() {
			c.scan(inner, here)
		}
		n.resolve()
		n.uses(func(u **register) {
			c.use(*u, here)
			// A loop's condition is used at the end of the loop's latch. The latch is the region
			// after the loop's body.
			if r := c.usage(*u); n.kind == loopForever && r.home == n.latch {
				r.lastUse = len(n.latch.nodes)
				r.count++
			}
		})
		for _, d := range n.dst {
			c.usage(d).home = r
		}
	}
}

func (c *coalescer) use(u *register, here []position) {
	r := c.usage(u)
	r.count++
	for _, p := range here {
		if p.r == r.home {
			r.lastUse = max(r.lastUse, p.index)
			return
		}
	}
	// A register that is defined in the entry region may be used in another region. This counts as
	// a use at the end of the entry region.
	if r.home != nil && len(here) > 0 && r.home != here[0].r {
		r.lastUse = len(r.home.nodes)
	}
}

// assigns reports whether n, or a node inside n, sets v.
func (c *coalescer) assigns(n *node, v *register) bool {
	if slices.Contains(n.dst, v) {
		return true
	}
	if n.kind != branchIf && n.kind != loopForever {
		return false
	}
	if c.sets == nil {
		c.sets = map[*node]map[*register]bool{}
	}
	set := c.sets[n]
	if set == nil {
		set = map[*register]bool{}
		for _, inner := range n.regions() {
			inner.walk(func(_ *region, m *node) {
				for _, d := range m.dst {
					if d.mutable {
						set[d] = true
					}
				}
			})
		}
		c.sets[n] = set
	}
	return set[v]
}

func isSnapshot(n *node) bool {
	return n.kind == instruction && n.op == "mov" && n.form == formPlain && len(n.args) == 1 && n.args[0].mutable && !n.dst[0].mutable
}

func (c *coalescer) snapshots(r *region) {
	kept := r.nodes[:0:0]
	for i, n := range r.nodes {
		n.resolve()
		if isSnapshot(n) && c.stable(r, i) {
			n.dst[0].same = n.args[0]
			continue
		}
		for _, inner := range n.regions() {
			c.snapshots(inner)
		}
		n.resolve()
		kept = append(kept, n)
	}
	r.nodes = kept
}

// stable reports whether a Var keeps its value while a copy of it is used. The copy is made by node
// i of r.
func (c *coalescer) stable(r *region, i int) bool {
	d, v := r.nodes[i].dst[0], r.nodes[i].args[0]
	last := c.usage(d).lastUse
	for j := i + 1; j <= last && j < len(r.nodes); j++ {
		m := r.nodes[j]
		if c.assigns(m, v) && !(j == last && m.kind == instruction) {
			return false
		}
	}
	return true
}

func (c *coalescer) results(r *region) {
	gone := map[int]bool{}
	defined := map[*register]int{}
	for i, n := range r.nodes {
		for _, inner := range n.regions() {
			c.results(inner)
		}
		if n.kind == instruction && n.op == "mov" && n.form == formPlain && n.dst[0].mutable {
			v, t := n.dst[0], n.args[0]
			p, here := defined[t]
			if here && !t.mutable && c.usage(t).count == 1 && c.untouched(r.nodes[p+1:i], v) {
				m := r.nodes[p]
				for k, d := range m.dst {
					if d == t {
						m.dst[k] = v
					}
				}
				gone[i] = true
				continue
			}
		}
		for _, d := range n.dst {
			if !d.mutable {
				defined[d] = i
			}
		}
	}
	kept := r.nodes[:0:0]
	for i, n := range r.nodes {
		if !gone[i] {
			kept = append(kept, n)
		}
	}
	r.nodes = kept
}

// untouched reports whether no node in the list reads v, sets v, or may jump out of the list.
func (c *coalescer) untouched(nodes []*node, v *register) bool {
	for _, n := range nodes {
		if n.kind != instruction && n.kind != comment {
			return false
		}
		ok := true
		n.uses(func(u **register) { ok = ok && *u != v })
		for _, d := range n.dst {
			ok = ok && d != v
		}
		if !ok {
			return false
		}
	}
	return true
}
