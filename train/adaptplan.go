package train

import "fmt"

// Steps of a plan.
const (
	probeAfter = 16   // good steps before a larger part is tried
	probeRetry = 64   // before one that has failed is
	probeMost  = 8192 // what that grows to, doubled with each failure
)

// A plan remembers which sizes of parts fit.
type plan struct {
	limit int // samples that are computed at once at most, whatever fits; 0: no limit
	most  int // samples that fit; 0: no batch has failed
	bad   int // the fewest samples that did not fit since; 0: not known
	steps int // good ones since something was tried
	after int // steps before a probe
	retry int // steps before what failed is tried again
}

func newPlan(limit, after int) plan {
	if after == 0 {
		after = probeAfter
	}
	return plan{limit: limit, after: after, retry: max(probeRetry, 4*after)}
}

// now is the most samples that are computed at once; 0: batches are whole.
func (p *plan) now() int {
	if p.limit > 0 && (p.most == 0 || p.most > p.limit) {
		return p.limit
	}
	return p.most
}

func ceil(n, d int) int { return (n + d - 1) / d }

// parts says into how many parts a batch of n samples is divided, and whether that tries more than is known to fit.
func (p *plan) parts(n int) (k int, probe bool) {
	most := p.now()
	if most == 0 || n <= most {
		return 1, false
	}
	k = ceil(n, most)
	least := 1 // parts with which nothing has failed
	if p.limit > 0 {
		least = ceil(n, p.limit)
	}
	if k == least {
		return k, false
	}
	if p.bad > 1 {
		least = max(least, ceil(n, p.bad-1))
	}
	switch {
	case least < k && p.steps >= p.after:
		return (least + k) / 2, true
	case least >= k && p.steps >= p.retry:
		return k - 1, true
	}
	return k, false
}

// failed notes that a probe with parts of size samples did not fit, and returns the parts that do.
func (p *plan) failed(n, size int) (k int) {
	if p.bad > 0 && size >= p.bad { // it had failed before
		p.retry = min(2*p.retry, probeMost)
	} else {
		p.bad = size
	}
	p.steps = 0
	k, _ = p.parts(n)
	return k
}

// halve notes that size samples did not fit, though they were to, and returns the parts of half as many.
func (p *plan) halve(n, size int) (k int) {
	p.most, p.bad, p.steps = ceil(size, 2), size, 0
	return ceil(n, p.most)
}

// good notes that a batch of n samples was computed in k parts, and returns the most that fit before and now.
func (p *plan) good(n, k int, probe bool) (before, now int) {
	before = p.now()
	p.steps++
	if probe {
		p.steps = 0
		p.most = ceil(n, k)
		if p.bad <= p.most {
			p.bad = 0
		}
		if k == 1 && p.bad == 0 {
			p.most = 0
		}
	}
	return before, p.now()
}

// state is the plan as a checkpoint keeps it.
func (p *plan) state() map[string]any {
	return map[string]any{"most": int64(p.most), "bad": int64(p.bad), "steps": int64(p.steps), "retry": int64(p.retry)}
}

// load goes on from a state.
func (p *plan) load(sd map[string]any) error {
	var v [4]int
	for i, key := range []string{"most", "bad", "steps", "retry"} {
		n, ok := sd[key].(int64)
		if !ok || n < 0 || n > 1<<31-1 {
			return fmt.Errorf("the split of batches has %q as %v", key, sd[key])
		}
		v[i] = int(n)
	}
	p.most, p.bad, p.steps, p.retry = v[0], v[1], v[2], max(v[3], 1)
	return nil
}
