package ptxvm

// reconverge sets rpc of every branch: the index of the instruction at which its lanes meet again.
// This is the first instruction of the immediate post-dominator of the branch's block. Only the
// last exit of the text counts as an exit. No instruction waits for lanes that leave by an earlier
// exit, so the remaining lanes still meet. Post-dominators follow Cooper, Harvey and Kennedy, "A
// Simple, Fast Dominance Algorithm" (2001), on the reversed graph of instructions.
//
// The argument code is the body of the entry or of a function. The argument offset is the index of
// code[0] in the whole code.
func reconverge(code []inst, offset int32) {
	n := len(code)
	// Each instruction is a node of the graph. Only branches have several successors.
	var buf [2]int32
	succ := func(i int) []int32 {
		in := &code[i]
		s := buf[:0]
		switch {
		case in.kind == kBranch && in.guard == 0:
			return append(s, in.target-offset)
		case in.kind == kBranch:
			return append(s, int32(i)+1, in.target-offset)
		case in.kind == kTable:
			if in.guard != 0 {
				s = append(s, int32(i)+1)
			}
			for _, t := range in.x.table {
				s = append(s, t-offset)
			}
			return s
		case (in.kind == kExit || in.kind == kReturn) && in.guard == 0:
			return nil
		}
		return append(s, int32(i)+1)
	}
	preds := make([][]int32, n)
	for i := range code {
		for _, a := range succ(i) {
			if p := preds[a]; len(p) == 0 || p[len(p)-1] != int32(i) {
				preds[a] = append(preds[a], int32(i))
			}
		}
	}
	exit := n - 1 // the appended ret, or the last unguarded exit if no path reaches that ret
	for exit > 0 && len(preds[exit]) == 0 {
		exit--
		for exit > 0 && !(code[exit].kind == kExit && code[exit].guard == 0) {
			exit--
		}
	}
	// The nodes of the reversed graph are numbered in postorder, beginning at the exit.
	num := make([]int32, n) // postorder number of each node; 0 if it was not reached
	var order []int32
	type frame struct{ node, next int32 }
	stack := []frame{{int32(exit), 0}}
	seen := make([]bool, n)
	seen[exit] = true
	for len(stack) > 0 {
		f := &stack[len(stack)-1]
		if int(f.next) < len(preds[f.node]) {
			p := preds[f.node][f.next]
			f.next++
			if !seen[p] {
				seen[p] = true
				stack = append(stack, frame{p, 0})
			}
			continue
		}
		order = append(order, f.node)
		num[f.node] = int32(len(order))
		stack = stack[:len(stack)-1]
	}
	idom := make([]int32, n)
	for i := range idom {
		idom[i] = -1
	}
	idom[exit] = int32(exit)
	intersect := func(a, b int32) int32 {
		for a != b {
			for num[a] < num[b] {
				a = idom[a]
			}
			for num[b] < num[a] {
				b = idom[b]
			}
		}
		return a
	}
	for changed := true; changed; {
		changed = false
		for k := len(order) - 2; k >= 0; k-- {
			i := order[k]
			d := int32(-1)
			for _, s := range succ(int(i)) {
				switch {
				case idom[s] < 0:
				case d < 0:
					d = s
				default:
					d = intersect(d, s)
				}
			}
			if d != idom[i] {
				idom[i] = d
				changed = true
			}
		}
	}
	for i := range code {
		if (code[i].kind == kBranch || code[i].kind == kTable) && seen[i] && i != exit && idom[i] >= 0 {
			code[i].rpc = idom[i] + offset
		}
	}
}
