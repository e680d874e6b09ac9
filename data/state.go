package data

import "fmt"

// place is a position of a loader: an epoch, and a number of batches in it.
type place struct {
	epoch int
	// at is the number of batches of the epoch that the loop has passed, including batches that
	// Skip left empty.
	at int
}

// StateDict returns the position of the loader, for a checkpoint. If it is called within the loop,
// it includes the batch of the current iteration. The keys "epoch", "position" and "seed" hold the
// position, as int64 values. The seed, a uint64, is saved as the int64 with the same bits. The keys
// "batches" (in an epoch), "samples" (in the dataset) and "batch" ([Config].Batch) are int64 too,
// and -1 if unknown. [Loader.LoadStateDict] compares the last three values with the loader's own.
func (l *Loader) StateDict() map[string]any {
	n := int64(l.Len())
	l.mu.Lock()
	defer l.mu.Unlock()
	return map[string]any{"epoch": int64(l.progress.epoch), "position": int64(l.progress.at), "seed": int64(l.seed), "batches": n, "samples": l.samples(), "batch": int64(l.c.Batch)}
}

// samples returns the length of the dataset, or -1 for a stream.
func (l *Loader) samples() int64 {
	if l.ds == nil {
		return -1
	}
	return int64(l.ds.Len())
}

// LoadStateDict makes the next loop continue after the last batch that the program had received
// when the state was saved. It takes the seed from the state. The order and the random numbers are
// those of an uninterrupted loop, whatever the number of workers. Earlier batches are not prepared
// again. The dataset, batch size and samplers must be the same as when the state was saved. A
// sampler given in Config keeps its own seed. If the state was saved at the last batch of an epoch,
// the next loop has no batches. If LoadStateDict fails, the error is a *[StateError], and the
// loader is unchanged.
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
		// States of earlier versions lack these keys.
		if was, ok := state[key]; ok && was != now {
			return &StateError{key, fmt.Sprintf("the state is of %v, this loader has %d; dataset, batch size and sampler must be the same", was, now)}
		}
	}
	if n >= 0 && v[1] > n {
		return &StateError{"position", fmt.Sprintf("%d of %d batches", v[1], n)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seed = uint64(v[2])
	l.progress = place{int(v[0]), int(v[1])}
	l.next = l.progress
	l.turn++
	return nil
}

// SetEpoch sets the epoch of the next loop, counted from 0. The order of the samples depends on it.
// If the next loop is to continue within epoch n after [Loader.LoadStateDict], SetEpoch(n) changes
// nothing.
func (l *Loader) SetEpoch(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next.epoch != n {
		l.next = place{epoch: n}
		l.progress = l.next
		l.turn++
	}
}

// Epoch returns the epoch of the next loop, counted from 0.
func (l *Loader) Epoch() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next.epoch
}

// Skipped returns the number of samples that Config.Skip has left out so far.
func (l *Loader) Skipped() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.skipped
}

// begin marks the beginning of a loop. It returns the loop's first position, its seed and its
// number.
func (l *Loader) begin() (from place, seed uint64, turn int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from = l.next
	l.next = place{epoch: from.epoch + 1}
	l.progress = from
	l.turn++
	return from, l.seed, l.turn
}

// recordProgress records the position of the latest loop. It ignores older loops, and loops that
// began before a state was loaded.
func (l *Loader) recordProgress(turn int, p place, skipped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.skipped += skipped
	if turn == l.turn {
		l.progress = p
	}
}
