package device

// Sorter is satisfied by devices that order the elements of rows.
type Sorter interface {
	// Argsort sets each row of out, I64, to the positions of the first elements of that row of x in ascending order, or in
	// descending order; out and x are of rank 2 and have the same rows, and out has at most x's columns. NaN is the greatest; 0
	// and -0 are equal, as are all NaN. Equal elements keep their order, also if descending.
	Argsort(s Stream, out, x View, descending bool) error
}
