package tensor

// Unordered runs f without the order between streams. If noWaits is true, ops do not wait for other
// streams. If noUses is true, memory is reused while other streams may still use it.
func Unordered(noWaits, noUses bool, f func()) {
	withoutWaits, withoutUses = noWaits, noUses
	defer func() { withoutWaits, withoutUses = false, false }()
	f()
}

// Sharers returns how many finished graphs use the memory of x.
func Sharers(x *Tensor) int {
	sharing.Lock()
	defer sharing.Unlock()
	if u := sharing.byStorage[x.st]; u != nil {
		return len(u.graphs)
	}
	return 0
}

// ExprPlans returns how many plans of expressions are cached.
func ExprPlans() int {
	exprPlans.mu.RLock()
	defer exprPlans.mu.RUnlock()
	return len(exprPlans.m)
}

// ExprWholes maps ops that an expression cannot call to the methods to call instead. These ops work
// on many elements together.
var ExprWholes = exprWholes

// Vigils returns how many scopes are watched because they set NoGrad or Autocast.
func Vigils() int { return int(modeWatches.n.Load()) }
