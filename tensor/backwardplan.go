package tensor

// A task is what one run does with the gradient that comes together at a node or a leaf.
type task struct {
	at edge
	// order is when: descending, after all tasks that send here. A node's is even and grows with
	// the time it was recorded at; a leaf comes right behind the last node that sends to it.
	order   uint64
	g       *Tensor  // what has come so far
	one     bool     // of a node, that 1 has come, of which there is no tensor; g is nil
	partial *partial // what has come in parts, while g is nil
	to      []*task  // for a node, where the gradients of its operands go; nil: nowhere
	senders int      // how often gradients may come: operands of nodes, and starts
	needed  bool     // for a node, that its VJP is called
	input   int      // 1 + the number of the input whose gradient this is, 0 for none

	watched *watchedLeaf // of a leaf, nil if nobody watches it
}

// queue orders tasks.
type queue []*task

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].order > q[j].order }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(v any)        { *q = append(*q, v.(*task)) }
func (q *queue) Pop() any {
	old := *q
	t := old[len(old)-1]
	*q = old[:len(old)-1]
	return t
}

// plan makes a task for every node and leaf that gradients go to, and finds out which of them lead
// to an input.
func (e *engine) plan(starts []start) {
	all := e.inputs == nil
	oldest := uint64(0) // a node that is older than every input leads to none
	if !all {
		oldest = ^uint64(0)
		for at := range e.tasks {
			if at.node == nil {
				oldest = 0
				break
			}
			oldest = min(oldest, at.node.seq)
		}
	}
	type frame struct {
		t    *task
		next int // operand
	}
	var path []frame
	visit := func(at edge, sender uint64) *task {
		t := e.tasks[at]
		if t == nil {
			t = &task{at: at, needed: all}
			e.tasks[at] = t
		}
		t.senders++
		switch n := at.node; {
		case n == nil && t.order == 0:
			e.watched.reaches(t)
			t.order = sender - 1
		case n == nil && sender-1 < t.order:
			t.order = sender - 1
		case n != nil && t.order == 0:
			t.order = 2 * n.seq
			if n.seq >= oldest {
				t.to = make([]*task, len(n.inputs))
				path = append(path, frame{t, 0})
			}
		}
		return t
	}
	for _, s := range starts {
		visit(edgeOf(s.y), ^uint64(0))
		for len(path) > 0 {
			f := &path[len(path)-1]
			n := f.t.at.node
			if f.next < len(n.inputs) {
				to := n.inputs[f.next]
				f.next++
				if to != (edge{}) {
					f.t.to[f.next-1] = visit(to, 2*n.seq) // before f moves
				}
				continue
			}
			path = path[:len(path)-1]
			for _, to := range f.t.to {
				f.t.needed = f.t.needed || to.wanted()
			}
		}
	}
}

// wanted reports whether a gradient sent to t is of use.
func (t *task) wanted() bool { return t != nil && (t.needed || t.input > 0) }
