package tensor

// A task collects the gradient of a node's result or of a leaf. The engine processes the task once
// the gradient is complete.
type task struct {
	at edge
	// order is the task's priority: a higher order comes first. So a task comes after all tasks
	// that send to it. A node's order is even, and higher for nodes that were recorded later. A
	// leaf comes right after the last node that sends to it.
	order   uint64
	g       *Tensor  // sum of the gradients that have arrived
	one     bool     // for a node: true if the gradient is a 1 without a tensor; g is then nil
	partial *partial // the parts that have arrived, while g is nil
	to      []*task  // for a node: the task of each operand, nil for an operand without one
	// number of gradients that may arrive: one for each op that uses the value, and one if the run
	// starts from it
	senders int
	needed  bool // for a node: true if the run must call the node's VJP
	// i+1 if the task collects the gradient of engine.inputs[i]; 0 if the task belongs to no input
	input int

	watched *watchedLeaf // for a leaf: the leaf's watchers; nil if there are none
}

// queue is a heap of tasks, the highest order first.
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

// plan makes a task for every node and leaf that gradients can reach. It finds out which of them
// lead to an input.
func (e *engine) plan(starts []start) {
	all := e.inputs == nil
	oldest := uint64(0) // nodes with a lower seq are older than every input, so they lead to none
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
		next int // number of the operand to visit next
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
					// The call of visit may reallocate the slice path. Then f points into the old
					// array, which holds the same f.t.
					f.t.to[f.next-1] = visit(to, 2*n.seq)
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

// wanted reports whether the run can use a gradient sent to t.
func (t *task) wanted() bool { return t != nil && (t.needed || t.input > 0) }
