// Package table reads comma-separated tables (CSV) into tensors, to train on their columns.
//
// [Load] and [Read] return a [Table]: X with the inputs and Y with the target, which is a class or
// a number. [Table.Dataset] makes a dataset of it for a loader. [Describe] lists the columns of
// words and the words in them.
//
// A column of numbers becomes one column of X. A column of words becomes a column of X for each
// word, which is 1 if the row has the word and 0 otherwise (one-hot). To use a trained model on
// another table, read that table with the same Config.Categories.
//
// Quoting is that of RFC 4180: a field in quotes may hold commas, doubled quotes and line ends. The
// first line has the names of the columns, unless Config.NoHeader is set. Empty lines are ignored.
//
// If a field cannot be read, the error is an *[Error] with the file, the line and the column. A
// missing value is such an error too, unless Config.Missing says how to replace it.
package table

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/tensor"
)

// Missing says how to treat a missing value. A value is missing if its field is empty or is one of
// the words NA, N/A, NaN, null, None and ?, in upper or lower case.
type Missing int

// These are the ways to treat a missing value. A row without a target cannot be used, so a missing
// target is an error in all modes except Drop.
const (
	Refuse Missing = iota // report an error
	Drop                  // leave out the row
	Mean                  // use the mean of the column's values, or 0 if it has none
	Zero                  // use 0 for the missing value
	NaN                   // use NaN for the missing value
)

// A Config says how to read a table. The zero value reads a table with a header, and all columns
// are inputs.
//
// The fields select columns by their names in the header. A name that the header lacks may be a
// number: the index of the column, counted from 0. A negative number counts from the end, so "-1"
// is the last column.
type Config struct {
	Comma    rune // separator of fields; 0 means ','
	NoHeader bool // the first line holds values; columns are named "0", "1", …
	// names of the columns that are inputs, in order; nil means all columns except the target
	Columns []string
	Target  string // name of the target's column; "" means no target
	Number  bool   // true if the target is a number; otherwise it is a class name
	// Classes are all classes, in order. Nil means the classes in the file in ascending order, as
	// numbers if all are whole numbers, else as text.
	Classes []string
	Missing Missing

	// Categories holds, by column name, the words of each column that holds words. All other inputs
	// are numbers. If a row has a word that is not listed, all features of the column are 0, and
	// [Table].Unknown has an entry for the word. If Missing is Mean, Zero or NaN, the features are
	// 0 for a missing word too.
	Categories map[string][]string
	// Fill holds, by column name, the numbers that replace missing values in the mode Mean, instead
	// of the columns' means.
	Fill map[string]float64

	Max int64 // largest number of bytes to read; 0 means 4 GiB
}

// A Table is the contents of a file as tensors.
type Table struct {
	X *tensor.Tensor // inputs, [rows, features] float32
	// Y is [rows], the targets as int64 classes or float32 numbers. It is nil if there is no
	// target.
	Y       *tensor.Tensor
	Columns []string // names of the inputs
	// Features are the names of X's features: "column" for a column of numbers, and "column=word"
	// for each word of a column of words.
	Features []string
	Target   string   // name of the target's column
	Classes  []string // names of the classes in Y; nil if the target is a number
	Dropped  int      // number of rows that [Drop] left out
	// Rows is the index in the file, from 0, of each row of X. It is nil if X has all rows.
	Rows    []int
	Means   map[string]float64 // means of the columns of numbers, by column name
	Unknown []Unknown          // words not in Categories, each listed once for each column
}

// Unknown is a word in the table that is not in the categories of its column.
type Unknown struct {
	Line         int // first line of the file that has the word
	Column, Word string
}

const (
	maxBytes   = 4 << 30
	maxClasses = 1 << 16
)

// missing reports whether a field stands for a missing value.
func missing(field string) bool {
	switch field {
	case "", "?":
		return true
	}
	if len(field) > 4 || field[0] != 'N' && field[0] != 'n' {
		return false
	}
	switch strings.ToLower(field) {
	case "na", "n/a", "nan", "null", "none":
		return true
	}
	return false
}

// Load reads the table in a file.
func Load(path string, c Config) (*Table, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &Error{Path: path, Err: err}
	}
	defer f.Close()
	t, err := Read(f, c)
	var e *Error
	if errors.As(err, &e) {
		e.Path = path
	}
	return t, err
}

// Dataset returns the rows as samples. X is float32 [features], and Y is the target. Without a
// target, Y is the number of the row.
func (t *Table) Dataset() (*data.TensorDataset, error) {
	y := t.Y
	if y == nil {
		n := make([]int64, t.X.Dim(0))
		for i := range n {
			n[i] = int64(i)
		}
		y = tensor.From(n)
	}
	return data.NewTensorDataset(t.X, y)
}

// A reader holds the state of one call of Read.
type reader struct {
	Config
	csv    *csv.Reader
	header []string
	inputs []int // for each input, the index of its column
	// for each input, the number of each of its words; nil for a column of numbers
	words   []map[string]int
	offsets []int // for each input, the index of its first feature
	width   int   // number of features
	target  int   // index of the target's column; -1 for none
	x       []float32
	y       []float32
	ids     []int64
	classes
	sum      []float64 // for each input, the sum of its values
	count    []int
	holes    []hole
	dropped  int
	keptRows []int // indexes of the kept rows in the file; nil until a row is dropped
	unknown  []Unknown
	// seen has the unknown words reported so far. Their field Line is 0, so that a word is reported
	// once for each column.
	seen map[Unknown]bool
}

// A hole is a missing value. index is its position in x, and input is the number of its input.
type hole struct{ index, input int }

// classes gives each class name a number, in the order of first occurrence.
type classes struct {
	names []string
	id    map[string]int64
}

// Read reads a table from r until the end of r. It needs a few times as much memory as r has bytes.
func Read(r io.Reader, c Config) (*Table, error) {
	if err := c.check(); err != nil {
		return nil, &Error{Err: err}
	}
	rd, err := newReader(r, c)
	if err != nil {
		return nil, err
	}
	if err := rd.forEach(rd.row); err != nil {
		return nil, err
	}
	return rd.table()
}

func newReader(r io.Reader, c Config) (*reader, error) {
	limit := cmp.Or(c.Max, maxBytes)
	in := bufio.NewReaderSize(&limited{r: r, left: limit, limit: limit}, 1<<16)
	switch mark, _ := in.Peek(3); {
	case string(mark) == "\xef\xbb\xbf":
		in.Discard(3)
	case strings.HasPrefix(string(mark), "\xff\xfe") || strings.HasPrefix(string(mark), "\xfe\xff"):
		return nil, &Error{Err: errors.New("UTF-16 text; convert it to UTF-8")}
	}
	rd := &reader{Config: c, csv: csv.NewReader(in), target: -1, classes: classes{id: map[string]int64{}}, seen: map[Unknown]bool{}}
	rd.csv.ReuseRecord = true
	if c.Comma != 0 {
		rd.csv.Comma = c.Comma
	}
	return rd, nil
}

// forEach calls f for every row after the header.
func (r *reader) forEach(f func(row []string) error) error {
	for {
		row, err := r.csv.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return r.wrap(err, row)
		}
		if r.header == nil {
			if err := r.begin(row); err != nil {
				return err
			}
			if !r.NoHeader {
				continue
			}
		}
		if err := f(row); err != nil {
			return err
		}
	}
	if r.header == nil {
		return &Error{Err: errors.New("there is nothing in it")}
	}
	return nil
}

func (c *Config) check() error {
	switch {
	case c.Missing < Refuse || c.Missing > NaN:
		return fmt.Errorf("Config.Missing is %d, which is none of Refuse, Drop, Mean, Zero and NaN", c.Missing)
	case c.Max < 0:
		return fmt.Errorf("Config.Max is %d bytes", c.Max)
	case c.Comma == '"' || c.Comma == '\r' || c.Comma == '\n' || c.Comma != 0 && !utf8.ValidRune(c.Comma) || c.Comma == utf8.RuneError:
		return fmt.Errorf("Config.Comma is %q, which cannot separate fields", c.Comma)
	}
	return nil
}

// A limited reader returns an error if r has more bytes than the limit.
type limited struct {
	r           io.Reader
	left, limit int64
}

func (l *limited) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := l.r.Read(b[:min(int64(len(b))-1, l.left)+1])
	if int64(n) > l.left {
		n, err = int(l.left), fmt.Errorf("more than %d bytes", l.limit)
	}
	l.left -= int64(n)
	return n, err
}

// wrap converts an error of encoding/csv to an *Error.
func (r *reader) wrap(err error, row []string) error {
	var p *csv.ParseError
	if !errors.As(err, &p) {
		return &Error{Err: err}
	}
	if errors.Is(err, csv.ErrFieldCount) {
		return &Error{Line: p.Line, Err: fmt.Errorf("%d fields, not %d as in the first line", len(row), len(r.header))}
	}
	return &Error{Line: p.Line, Column: p.Column, Err: p.Err}
}

// begin determines the columns from row, the first line of the file.
func (r *reader) begin(row []string) error {
	for i, name := range row {
		if strings.Contains(name, "\r") {
			return &Error{Line: 1, Err: errors.New("lines that end in a carriage return alone, or a name that holds one; convert them to line feeds")}
		}
		if r.NoHeader {
			name = strconv.Itoa(i)
		}
		r.header = append(r.header, strings.Clone(strings.TrimSpace(name)))
	}
	if r.Target != "" {
		i, err := r.find(r.Target)
		if err != nil {
			return err
		}
		r.target = i
	}
	if r.Columns == nil {
		for i := range r.header {
			if i != r.target {
				r.inputs = append(r.inputs, i)
			}
		}
	}
	for _, name := range r.Columns {
		i, err := r.find(name)
		if err != nil {
			return err
		}
		if i == r.target {
			return &Error{Line: 1, Name: name, Err: errors.New("is the target and an input")}
		}
		r.inputs = append(r.inputs, i)
	}
	if len(r.inputs) == 0 {
		return &Error{Line: 1, Err: errors.New("there is no column for the inputs")}
	}
	for i, name := range r.Classes {
		if _, twice := r.id[name]; twice {
			return &Error{Err: fmt.Errorf("class %q is listed twice", name)}
		}
		r.id[name] = int64(i)
	}
	r.sum, r.count = make([]float64, len(r.inputs)), make([]int, len(r.inputs))
	return r.layOut()
}

// find returns the index of the column with the given name or number.
func (r *reader) find(name string) (int, error) { return find(r.header, name) }

func find(header []string, name string) (int, error) {
	at := slices.Index(header, name)
	switch n, err := strconv.Atoi(name); {
	case at >= 0 && slices.Contains(header[at+1:], name):
		return 0, &Error{Line: 1, Name: name, Err: errors.New("there are two columns of this name")}
	case at >= 0:
		return at, nil
	case err == nil && n >= 0 && n < len(header):
		return n, nil
	case err == nil && n < 0 && -n <= len(header):
		return len(header) + n, nil
	}
	some := header[:min(len(header), 20)]
	return 0, &Error{Line: 1, Name: name, Err: fmt.Errorf("there is none of this name among the %d: %q", len(header), some)}
}

func (r *reader) fail(column int, format string, args ...any) error {
	line, at := r.csv.FieldPos(column)
	return &Error{Line: line, Column: at, Name: r.header[column], Err: fmt.Errorf(format, args...)}
}

func parse(field string) (float64, error) {
	v, err := strconv.ParseFloat(field, 32)
	// ParseFloat also accepts "1_000" and "0x1p-2", but in a table these are words.
	if err == nil && strings.ContainsAny(field, "_xX") {
		err = strconv.ErrSyntax
	}
	return v, err
}

func (r *reader) number(row []string, column int) (float32, error) {
	v, err := parse(strings.TrimSpace(row[column]))
	if err != nil {
		what := "is not a number"
		if errors.Is(err, strconv.ErrRange) {
			what = "is too large for float32"
		}
		return 0, r.fail(column, "%.50q %s", row[column], what)
	}
	return float32(v), nil
}

func (r *reader) row(row []string) error {
	for _, c := range append(r.inputs[:len(r.inputs):len(r.inputs)], r.target) {
		if c < 0 || !missing(strings.TrimSpace(row[c])) {
			continue
		}
		switch {
		case r.Missing == Drop:
			if r.dropped == 0 {
				for i := range len(r.x) / r.width {
					r.keptRows = append(r.keptRows, i)
				}
			}
			r.dropped++
			return nil
		case c == r.target:
			return r.fail(c, "the target is %w; fill it in or leave the row out, as Config.Missing can", ErrMissing)
		case r.Missing == Refuse:
			return r.fail(c, "the value is %w; fill it in or leave the row out, as Config.Missing can", ErrMissing)
		}
	}
	if r.dropped > 0 {
		r.keptRows = append(r.keptRows, len(r.x)/r.width+r.dropped)
	}
	for k, c := range r.inputs {
		if r.words[k] != nil {
			r.word(k, strings.TrimSpace(row[c]))
			continue
		}
		if missing(strings.TrimSpace(row[c])) {
			r.holes = append(r.holes, hole{len(r.x), k})
			r.x = append(r.x, 0)
			continue
		}
		v, err := r.number(row, c)
		if err != nil {
			return err
		}
		r.sum[k] += float64(v)
		r.count[k]++
		r.x = append(r.x, v)
	}
	switch {
	case r.target < 0:
		// Without a target, only the number of ids matters: it is the number of rows.
		r.ids = append(r.ids, 0)
	case r.Number:
		v, err := r.number(row, r.target)
		if err != nil {
			return err
		}
		r.y = append(r.y, v)
	default:
		name := strings.TrimSpace(row[r.target])
		id, ok := r.id[name]
		switch {
		case !ok && r.Classes != nil:
			return r.fail(r.target, "%.50q is not one of the %d classes", name, len(r.Classes))
		case !ok && len(r.names) == maxClasses:
			return r.fail(r.target, "there are more than %d classes; Config.Number takes the target as a number", maxClasses)
		case !ok:
			id = int64(len(r.names))
			name = strings.Clone(name)
			r.names, r.id[name] = append(r.names, name), id
		}
		r.ids = append(r.ids, id)
	}
	return nil
}

// table makes tensors from the values that were read.
func (r *reader) table() (*Table, error) {
	rows := len(r.x) / r.width
	t := &Table{Dropped: r.dropped, Rows: r.keptRows, Unknown: r.unknown, Means: map[string]float64{}}
	for k, c := range r.inputs {
		t.Columns = append(t.Columns, r.header[c])
		t.Features = append(t.Features, r.features(k)...)
		if r.words[k] == nil && r.count[k] > 0 {
			t.Means[r.header[c]] = r.sum[k] / float64(r.count[k])
		}
	}
	for _, h := range r.holes {
		fill, given := r.Fill[r.header[r.inputs[h.input]]]
		switch k := h.input; {
		case r.Missing == Mean && given:
			r.x[h.index] = float32(fill)
		case r.Missing == Mean && r.count[k] > 0:
			r.x[h.index] = float32(r.sum[k] / float64(r.count[k]))
		case r.Missing == NaN:
			r.x[h.index] = float32(math.NaN())
		}
	}
	if r.target >= 0 {
		t.Target = r.header[r.target]
		if !r.Number {
			t.Classes = r.numbered()
		}
	}
	err := tensor.Try(func() {
		t.X = tensor.From(r.x, rows, r.width)
		if r.target >= 0 && r.Number {
			t.Y = tensor.From(r.y, rows)
		} else if r.target >= 0 {
			t.Y = tensor.From(r.ids, rows)
		}
	})
	if err != nil {
		return nil, &Error{Err: err}
	}
	return t, nil
}

// numbered gives the classes new numbers in sorted order, and returns their names in that order.
func (r *reader) numbered() []string {
	if r.Classes != nil {
		return slices.Clone(r.Classes)
	}
	sorted := slices.Sorted(slices.Values(r.names))
	whole := true
	for _, name := range sorted {
		_, err := strconv.ParseInt(name, 10, 64)
		whole = whole && err == nil
	}
	if whole {
		slices.SortStableFunc(sorted, func(a, b string) int {
			x, _ := strconv.ParseInt(a, 10, 64)
			y, _ := strconv.ParseInt(b, 10, 64)
			return cmp.Compare(x, y)
		})
	}
	to := make([]int64, len(sorted))
	for i, name := range sorted {
		to[r.id[name]] = int64(i)
	}
	for i, id := range r.ids {
		r.ids[i] = to[id]
	}
	return sorted
}
