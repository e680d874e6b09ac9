package tensor

// Unordered runs f without what keeps streams apart: with waits, ops do not wait for other streams;
// with uses, memory is reused without regard to foreign streams.
func Unordered(waits, uses bool, f func()) {
	withoutWaits, withoutUses = waits, uses
	defer func() { withoutWaits, withoutUses = false, false }()
	f()
}

// Sharers returns how many finished graphs are known to use the memory of x.
func Sharers(x *Tensor) int {
	sharing.Lock()
	defer sharing.Unlock()
	if u := sharing.of[x.st]; u != nil {
		return len(u.by)
	}
	return 0
}

// ExprPlans returns how many plans of expressions are kept.
func ExprPlans() int {
	exprPlans.mu.RLock()
	defer exprPlans.mu.RUnlock()
	return len(exprPlans.m)
}

// ExprWholes are the names that an expression says are not elementwise, and their methods.
var ExprWholes = exprWholes

// Vigils is how many scopes with modes are watched.
func Vigils() int { return int(vigils.n.Load()) }
