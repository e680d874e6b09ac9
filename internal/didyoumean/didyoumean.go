// Package didyoumean finds, for a misspelled name, the most similar name in a list.
package didyoumean

// Distance is the least number of bytes to insert, delete or replace to turn one string into the
// other (V. I. Levenshtein, "Binary codes capable of correcting deletions, insertions and
// reversals", 1966).
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Nearest returns the name that is most similar to s, or "" if each name has a [Distance] above
// limit. The most similar name has the smallest sum of twice the distance and the difference of the
// lengths. If several names are equally similar, it returns the first.
func Nearest(s string, names []string, limit int) string {
	best, least := "", 0
	for _, n := range names {
		d := Distance(s, n)
		if rank := 2*d + max(len(s)-len(n), len(n)-len(s)); d <= limit && (best == "" || rank < least) {
			best, least = n, rank
		}
	}
	return best
}
