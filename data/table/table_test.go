package table_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/flambeau-go/flambeau/data/table"
	"github.com/flambeau-go/flambeau/tensor"
)

const flowers = "\ufefflength,width,kind,note\n" +
	"5.1, 3.5 ,setosa,\"a, b\"\n" +
	"7e0,-3.2,\"versi\"\"color\",\"two\nlines\"\r\n" +
	"6.3,3.3,setosa,\n"

func read(t *testing.T, text string, c table.Config) *table.Table {
	t.Helper()
	x, err := table.Read(strings.NewReader(text), c)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestColumns(t *testing.T) {
	x := read(t, flowers, table.Config{Columns: []string{"width", "0"}, Target: "kind"})
	if !slices.Equal(x.X.Floats(), []float64{3.5, float64(float32(5.1)), float64(float32(-3.2)), 7, float64(float32(3.3)), float64(float32(6.3))}) {
		t.Fatal(x.X)
	}
	if !slices.Equal(tensor.Data[int64](x.Y), []int64{0, 1, 0}) || !slices.Equal(x.Classes, []string{"setosa", `versi"color`}) ||
		!slices.Equal(x.Columns, []string{"width", "length"}) || x.Target != "kind" {
		t.Fatal(x)
	}
	d, err := x.Dataset()
	if err != nil || d.Len() != 3 {
		t.Fatal(err)
	}
	// The target is the last column, and a number. The table has no header, and semicolons separate
	// the fields.
	x = read(t, "1;2;3.5\n4;5;6.5\n", table.Config{Comma: ';', NoHeader: true, Target: "-1", Number: true})
	if !slices.Equal(x.X.Floats(), []float64{1, 2, 4, 5}) || !slices.Equal(x.Y.Floats(), []float64{3.5, 6.5}) || x.Classes != nil {
		t.Fatal(x)
	}
	// Classes that are whole numbers are sorted as numbers. Without a target, Y counts the rows.
	x = read(t, "a,c\n1,10\n1,9\n1,-2\n1,10\n", table.Config{Target: "c"})
	if !slices.Equal(x.Classes, []string{"-2", "9", "10"}) || !slices.Equal(tensor.Data[int64](x.Y), []int64{2, 1, 0, 2}) {
		t.Fatal(x.Classes, x.Y)
	}
	x = read(t, "a,c\n1,10\n1,9\n", table.Config{})
	if d, err = x.Dataset(); err != nil || x.Y != nil || tensor.Data[int64](d.Y)[1] != 1 || x.X.Dim(1) != 2 {
		t.Fatal(x, err)
	}
	// Classes given in Config keep their order.
	x = read(t, "a,c\n1,no\n", table.Config{Target: "c", Classes: []string{"yes", "maybe", "no"}})
	if tensor.Data[int64](x.Y)[0] != 2 || len(x.Classes) != 3 {
		t.Fatal(x)
	}
	// A table without rows is no error.
	if x = read(t, "a,c\n", table.Config{Target: "c"}); x.X.Dim(0) != 0 || x.X.Dim(1) != 1 || x.Y.Dim(0) != 0 {
		t.Fatal(x)
	}
}

func TestMissing(t *testing.T) {
	text := "a,b,c\n1,,x\n3,NA,x\n n/a ,4,y\n5,8,?\n"
	c := table.Config{Columns: []string{"a", "b"}}
	for m, want := range map[table.Missing][]float64{
		table.Drop: {5, 8},
		table.Zero: {1, 0, 3, 0, 0, 4, 5, 8},
		table.Mean: {1, 6, 3, 6, 3, 4, 5, 8},
	} {
		c.Missing = m
		if x := read(t, text, c); !slices.Equal(x.X.Floats(), want) || x.Dropped != 4-len(want)/2 {
			t.Errorf("%v: %v, dropped %d", m, x.X, x.Dropped)
		}
	}
	c.Missing = table.NaN
	if v := read(t, text, c).X.Floats(); !math.IsNaN(v[1]) || v[2] != 3 {
		t.Error(v)
	}
	c.Missing, c.Target = table.Drop, "c"
	if x := read(t, text, c); x.X.Dim(0) != 0 || x.Dropped != 4 {
		t.Error(x)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		text         string
		c            table.Config
		want         string
		line, column int
	}{
		{"", table.Config{}, "nothing in it", 0, 0},
		{"a,b\n1,2\n3,four\n", table.Config{}, `column "b": "four" is not a number`, 3, 3},
		{"a,b\n1,2\n\n3,1e99\n", table.Config{}, "too large for float32", 4, 3},
		{"a,b\n1,\n", table.Config{}, "the value is missing", 2, 3},
		{"a,b\n1,\n", table.Config{Target: "b", Missing: table.Mean}, "the target is missing", 2, 3},
		{"a,b\n1,2,3\n", table.Config{}, "3 fields, not 2 as in the first line", 2, 0},
		{"a,b\n1\n", table.Config{}, "1 fields, not 2", 2, 0},
		{"a,b\n1,1_000\n", table.Config{}, `"1_000" is not a number`, 2, 3},
		{"a,b\n1,0x1p-2\n", table.Config{}, `"0x1p-2" is not a number`, 2, 3},
		{"a,b\r1,2\r", table.Config{}, "carriage return alone", 1, 0},
		{"\xff\xfea\x00\n\x00", table.Config{}, "UTF-16", 0, 0},
		{"a,b\n1,\n", table.Config{Missing: 7}, "Config.Missing is 7", 0, 0},
		{"a,b\n1,2\n", table.Config{Max: -1}, "Config.Max is -1", 0, 0},
		{"a,b\n1,2\n", table.Config{Max: 7}, "more than 7 bytes", 0, 0},
		{"a,b\n1,\"2\n", table.Config{}, `extraneous or missing " in quoted-field`, 2, 6},
		{"a,b\n1,2\"\n", table.Config{}, `bare "`, 2, 4},
		{"a,b\n1,2\n", table.Config{Target: "d"}, `column "d": there is none of this name among the 2: ["a" "b"]`, 1, 0},
		{"a,b\n1,2\n", table.Config{Target: "-3"}, "there is none", 1, 0},
		{"a,a\n1,2\n", table.Config{Target: "a"}, "two columns", 1, 0},
		{"a,b\n1,2\n", table.Config{Target: "a", Columns: []string{"b", "a"}}, "is the target and an input", 1, 0},
		{"a\n1\n", table.Config{Target: "a"}, "no column for the inputs", 1, 0},
		{"a,b\n1,z\n", table.Config{Target: "b", Classes: []string{"x"}}, `"z" is not one of the 1 classes`, 2, 3},
		{"a,b\n1,z\n", table.Config{Target: "b", Classes: []string{"x", "x"}}, "listed twice", 0, 0},
		{"a,b\n1,z\n", table.Config{Max: 5}, "more than 5 bytes", 0, 0},
		{"a,b\n1,z\n", table.Config{Comma: '\n'}, "Config.Comma is '\\n', which", 0, 0},
	} {
		_, err := table.Read(strings.NewReader(c.text), c.c)
		var e *table.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) || e.Line != c.line || e.Column != c.column {
			t.Errorf("%q: %v (%+v), want %q at %d:%d", c.text, err, e, c.want, c.line, c.column)
		}
	}
	if x, err := table.Read(iotest.OneByteReader(strings.NewReader("a,b\n1,2\n")), table.Config{Max: 8}); err != nil || x.X.Size() != 2 {
		t.Errorf("a table as large as the limit: %v", err)
	}
	var many strings.Builder
	many.WriteString("a,b\n")
	for i := range 1<<16 + 1 {
		fmt.Fprintf(&many, "1,c%d\n", i)
	}
	if _, err := table.Read(strings.NewReader(many.String()), table.Config{Target: "b"}); err == nil || !strings.Contains(err.Error(), "65536 classes") {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "t.csv")
	if _, err := table.Load(path, table.Config{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	os.WriteFile(path, []byte("a\nx\n"), 0o644)
	if _, err := table.Load(path, table.Config{}); err == nil || !strings.Contains(err.Error(), path+":2:1") {
		t.Error(err)
	}
}

func FuzzCSV(f *testing.F) {
	f.Add([]byte(flowers), uint8(0))
	f.Add([]byte("1;2\n;4\n"), uint8(7))
	f.Add([]byte("a,b\n1,\"2\n"), uint8(2))
	f.Fuzz(func(t *testing.T, text []byte, how uint8) {
		c := table.Config{NoHeader: how&1 != 0, Missing: table.Missing(how >> 1 & 7 % 5), Number: how&16 != 0}
		if how&32 != 0 {
			c.Comma = ';'
		}
		if how&64 != 0 {
			c.Target = "-1"
		}
		x, err := table.Read(strings.NewReader(string(text)), c)
		var e *table.Error
		if err != nil {
			if !errors.As(err, &e) || e.Line > strings.Count(string(text), "\n")+1 {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		if x.X.Dim(1) != len(x.Columns) || x.Y != nil && x.Y.Dim(0) != x.X.Dim(0) {
			t.Fatal(x)
		}
		if x.Y != nil && !c.Number {
			for _, id := range tensor.Data[int64](x.Y) {
				if id < 0 || id >= int64(len(x.Classes)) {
					t.Fatalf("class %d of %q", id, x.Classes)
				}
			}
			if !slices.IsSorted(x.Classes) && len(x.Classes) > 0 && strings.Trim(strings.Join(x.Classes, ""), "+-0123456789") != "" {
				t.Fatalf("%q", x.Classes)
			}
		}
	})
}
