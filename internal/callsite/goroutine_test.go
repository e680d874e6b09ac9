package callsite

import "testing"

func TestGoroutine(t *testing.T) {
	seen := map[uint64]bool{Goroutine(): true}
	if !seen[Goroutine()] || seen[0] {
		t.Errorf("not the same again: %v", seen)
	}
	hold, got := make(chan bool), make(chan uint64)
	for range 50 {
		go func() {
			got <- Goroutine()
			<-hold // so that none is over before the others have begun
		}()
	}
	for range 50 {
		seen[<-got] = true
	}
	close(hold)
	if len(seen) != 51 || seen[0] {
		t.Errorf("%d numbers of 51 goroutines", len(seen))
	}
}
