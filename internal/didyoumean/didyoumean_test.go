package didyoumean

import "testing"

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"exp", "exp", 0}} {
		if got := Distance(c.a, c.b); got != c.want || got != Distance(c.b, c.a) {
			t.Errorf("%q to %q: %d, %d are right", c.a, c.b, got, c.want)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"tan", "tanh", "sigmoid"}
	for s, want := range map[string]string{"tahn": "tan", "tamh": "tanh", "sigmod": "sigmoid", "banana": ""} {
		if got := Nearest(s, names, 2); got != want {
			t.Errorf("%q: %q, not %q", s, got, want)
		}
	}
}
