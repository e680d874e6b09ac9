package table

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
)

// MaxWords is the largest number of different words in a column that [Config].Categories may turn
// into features.
const MaxWords = 1000

// layOut assigns columns of X to the inputs.
func (r *reader) layOut() error {
	for _, c := range r.inputs {
		r.offsets = append(r.offsets, r.width)
		list, ok := r.Categories[r.header[c]]
		if !ok {
			r.words = append(r.words, nil)
			r.width++
			continue
		}
		if n := len(list); n == 0 || n > MaxWords {
			return &Error{Line: 1, Name: r.header[c], Err: fmt.Errorf("%d different words; 1 to %d can become columns", n, MaxWords)}
		}
		place := map[string]int{}
		for i, w := range list {
			if _, twice := place[w]; twice {
				return &Error{Line: 1, Name: r.header[c], Err: fmt.Errorf("the word %q is listed twice", w)}
			}
			place[w] = i
		}
		r.words = append(r.words, place)
		r.width += len(list)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Categories)) {
		if !slices.ContainsFunc(r.inputs, func(c int) bool { return r.header[c] == name }) {
			return &Error{Line: 1, Name: name, Err: errors.New("its words are listed, and it is no input")}
		}
	}
	return nil
}

// word appends the features of one row for an input that is a column of words.
func (r *reader) word(input int, word string) {
	at := len(r.x)
	r.x = append(r.x, make([]float32, len(r.words[input]))...)
	if place, ok := r.words[input][word]; ok {
		r.x[at+place] = 1
		return
	}
	u := Unknown{Column: r.header[r.inputs[input]], Word: word}
	if missing(word) || r.seen[u] {
		return
	}
	u.Word = strings.Clone(word)
	r.seen[u] = true
	u.Line, _ = r.csv.FieldPos(r.inputs[input])
	r.unknown = append(r.unknown, u)
}

func (r *reader) features(input int) (names []string) {
	name := r.header[r.inputs[input]]
	if r.words[input] == nil {
		return []string{name}
	}
	for _, w := range r.Categories[name] {
		names = append(names, name+"="+w)
	}
	return names
}

// A Description says what the columns of a table hold.
type Description struct {
	Rows    int
	Columns []Column
	path    string
}

// A Column describes one column of a table, in a [Description].
type Column struct {
	Name     string
	Missing  int  // number of rows without a value
	Numbers  bool // true if every value is a number
	Whole    bool // true if every value is a whole number
	Distinct int  // number of different values as text, at most 65536
	// Words holds the different values, sorted, if some of them are not numbers. It is nil if there
	// are more than [MaxWords].
	Words []string
}

// Describe reads the table in a file and reports what its columns hold. It uses only the fields
// Comma, NoHeader and Max of c.
func Describe(path string, c Config) (*Description, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &Error{Path: path, Err: err}
	}
	defer f.Close()
	d, err := describe(f, Config{Comma: c.Comma, NoHeader: c.NoHeader, Max: c.Max})
	var e *Error
	if errors.As(err, &e) {
		e.Path = path
	}
	if d != nil {
		d.path = path
	}
	return d, err
}

func describe(f io.Reader, c Config) (*Description, error) {
	if err := c.check(); err != nil {
		return nil, &Error{Err: err}
	}
	r, err := newReader(f, c)
	if err != nil {
		return nil, err
	}
	d := &Description{}
	var values []map[string]bool
	err = r.forEach(func(row []string) error {
		if d.Columns == nil {
			for _, name := range r.header {
				d.Columns = append(d.Columns, Column{Name: name, Numbers: true, Whole: true})
				values = append(values, map[string]bool{})
			}
		}
		d.Rows++
		for i, field := range row {
			k := &d.Columns[i]
			field = strings.TrimSpace(field)
			if missing(field) {
				k.Missing++
				continue
			}
			if k.Numbers {
				v, err := parse(field)
				k.Numbers = err == nil
				k.Whole = k.Whole && k.Numbers && v == math.Trunc(v)
			}
			if len(values[i]) < maxClasses && !values[i][field] {
				values[i][strings.Clone(field)] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if d.Rows == 0 {
		for _, name := range r.header {
			d.Columns = append(d.Columns, Column{Name: name})
		}
	}
	for i, set := range values {
		k := &d.Columns[i]
		k.Distinct = len(set)
		k.Numbers, k.Whole = k.Numbers && len(set) > 0, k.Whole && len(set) > 0
		if !k.Numbers && len(set) <= MaxWords {
			k.Words = slices.Sorted(maps.Keys(set))
		}
	}
	return d, nil
}

// Column returns the column with the given name. The name may be a number, as in [Config]. If there
// is none, the error is an *[Error].
func (d *Description) Column(name string) (*Column, error) {
	var header []string
	for _, k := range d.Columns {
		header = append(header, k.Name)
	}
	i, err := find(header, name)
	var e *Error
	if errors.As(err, &e) {
		e.Path = d.path
	}
	if err != nil {
		return nil, err
	}
	return &d.Columns[i], nil
}
