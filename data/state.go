package data

import "fmt"

// place is where a loader stands.
type place struct {
	epoch int
	at    int // batches of the epoch that have been seen, those left out by Skip included
}

// StateDict returns where the loader stands, for a checkpoint: it may be called within the loop,
// and counts the batch that the loop has in hand as seen. The keys are "epoch" and "position" (both
// int64), "seed" (its bits as int64), and what [Loader.LoadStateDict] compares: "batches" (of an
// epoch), "samples" (of the dataset) and "batch" ([Config].Batch), all int64, -1 where that is not
// known.
func (l *Loader) StateDict() map[string]any {
	n := int64(l.Len())
	l.mu.Lock()
	defer l.mu.Unlock()
	return map[string]any{"epoch": int64(l.seen.epoch), "position": int64(l.seen.at), "seed": int64(l.seed), "batches": n, "samples": l.samples(), "batch": int64(l.c.Batch)}
}

// samples is the length of the dataset, -1 for a stream.
func (l *Loader) samples() int64 {
	if l.ds == nil {
		return -1
	}
	return int64(l.ds.Len())
}

// LoadStateDict makes the next loop go on with the batch after the last one that was seen when the
// state was taken. The order and the random numbers are the same, whatever the number of workers:
// it takes the seed from the state. Batches that were seen are not prepared again. The dataset,
// batch size and samplers must be those of then; a sampler given in Config keeps its own seed. Of a
// state taken in the last batch's turn the next loop is the empty rest of that epoch. The error is
// a *[StateError], and l is unchanged.
func (l *Loader) LoadStateDict(state map[string]any) error {
	num := func(key string) (int64, error) {
		v, ok := state[key]
		if !ok {
			return 0, &StateError{key, "is missing; was the state made by StateDict of a data.Loader?"}
		}
		n, ok := v.(int64)
		if !ok {
			return 0, &StateError{key, fmt.Sprintf("is a %T, want an int64", v)}
		}
		return n, nil
	}
	var v [4]int64
	for i, key := range []string{"epoch", "position", "seed", "batches"} {
		n, err := num(key)
		if err != nil {
			return err
		}
		if key != "seed" && (n < 0 || int64(int(n)) != n) && !(key == "batches" && n == -1) {
			return &StateError{key, fmt.Sprintf("%d is out of range", n)}
		}
		v[i] = n
	}
	n := int64(l.Len())
	if v[3] != n {
		return &StateError{"batches", fmt.Sprintf("the state is of an epoch of %d batches, this loader's has %d; dataset, batch size and sampler must be the same", v[3], n)}
	}
	for key, now := range map[string]int64{"samples": l.samples(), "batch": int64(l.c.Batch)} {
		if was, ok := state[key]; ok && was != now { // states of earlier versions do not have them
			return &StateError{key, fmt.Sprintf("the state is of %v, this loader has %d; dataset, batch size and sampler must be the same", was, now)}
		}
	}
	if n >= 0 && v[1] > n {
		return &StateError{"position", fmt.Sprintf("%d of %d batches", v[1], n)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seed = uint64(v[2])
	l.seen = place{int(v[0]), int(v[1])}
	l.next = l.seen
	l.turn++
	return nil
}

// SetEpoch makes the next loop over the batches that of epoch n, counted from 0: the order is a
// function of it. After [Loader.LoadStateDict] with a state of epoch n it changes nothing: the loop
// goes on within the epoch.
func (l *Loader) SetEpoch(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next.epoch != n {
		l.next = place{epoch: n}
		l.seen = l.next
		l.turn++
	}
}

// Epoch returns the epoch that the next loop is in, counted from 0.
func (l *Loader) Epoch() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next.epoch
}

// Skipped returns how many samples Config.Skip has left out so far.
func (l *Loader) Skipped() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.skipped
}

// begin notes that a loop begins, and returns where and with which seed.
func (l *Loader) begin() (from place, seed uint64, turn int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from = l.next
	l.next = place{epoch: from.epoch + 1}
	l.seen = from
	l.turn++
	return from, l.seed, l.turn
}

// saw notes how far a loop has come. One that is not the latest, or was begun before a state was
// loaded, does not count.
func (l *Loader) saw(turn int, p place, skipped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.skipped += skipped
	if turn == l.turn {
		l.seen = p
	}
}
