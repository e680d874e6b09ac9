package device

// A Shortage is what an allocation failed for: the numbers behind an error that wraps [ErrOutOfMemory]. All are bytes, 0 where unknown.
type Shortage struct {
	Device    string
	Asked     int // by the allocation that failed
	For       string
	Total     int // memory of the device
	Free      int // of that, what nobody has, other programs included
	Limit     int // most that this program's pool may take; 0: no limit
	Reserved  int // what the pool has taken
	Allocated int // of that, in use
	Owners    []string
}

// Available is what the failed allocation's program could still have got, were it in one piece.
func (s *Shortage) Available() int {
	n := s.Free + s.Reserved - s.Allocated
	if s.Limit > 0 {
		n = min(n, s.Limit-s.Allocated)
	}
	return max(n, 0)
}

// A ShortageError is satisfied by errors of drivers that wrap [ErrOutOfMemory] and know the numbers; errors.As finds it.
type ShortageError interface {
	error
	Shortage() Shortage
}
