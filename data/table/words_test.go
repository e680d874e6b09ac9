package table_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/data/table"
)

const cars = "color,weight,seats,price\nred,1.5,4,10\nblue,,2,20.5\n?,2,5,30\n\"dark, blue\",1,4,40\n"

// A column of words becomes one feature for each listed word, in the order of the list. Other words
// appear in Table.Unknown.
func TestWords(t *testing.T) {
	c := table.Config{Target: "price", Number: true, Missing: table.Mean, Categories: map[string][]string{"color": {"red", "blue", "green"}}}
	got, err := table.Read(strings.NewReader(cars), c)
	if err != nil {
		t.Fatal(err)
	}
	want := []float64{
		1, 0, 0, 1.5, 4,
		0, 1, 0, 1.5, 2,
		0, 0, 0, 2, 5,
		0, 0, 0, 1, 4,
	}
	if !slices.Equal(got.X.Floats(), want) || !slices.Equal(got.Y.Floats(), []float64{10, 20.5, 30, 40}) {
		t.Error(got.X.Floats(), got.Y.Floats())
	}
	if names := []string{"color=red", "color=blue", "color=green", "weight", "seats"}; !slices.Equal(got.Features, names) || !slices.Equal(got.Columns, []string{"color", "weight", "seats"}) {
		t.Errorf("%q %q", got.Features, got.Columns)
	}
	if !reflect.DeepEqual(got.Unknown, []table.Unknown{{Line: 5, Column: "color", Word: "dark, blue"}}) || !reflect.DeepEqual(got.Means, map[string]float64{"weight": 1.5, "seats": 3.75}) {
		t.Error(got.Unknown, got.Means)
	}
	c.Fill = map[string]float64{"weight": 7}
	if got, err = table.Read(strings.NewReader(cars), c); err != nil || got.X.Floats()[8] != 7 {
		t.Error(got, err)
	}
	c.Missing = table.Drop
	if got, err = table.Read(strings.NewReader(cars), c); err != nil || got.Dropped != 2 || !slices.Equal(got.Rows, []int{0, 3}) || !slices.Equal(got.Y.Floats(), []float64{10, 40}) {
		t.Error(got, err)
	}
	c.Missing = table.Refuse
	var e *table.Error
	if _, err = table.Read(strings.NewReader(cars), c); !errors.As(err, &e) || !errors.Is(err, table.ErrMissing) || e.Line != 3 || e.Name != "weight" {
		t.Error(err)
	}
	for want, list := range map[string]map[string][]string{
		"listed twice":   {"color": {"red", "red"}},
		"is no input":    {"price": {"10"}},
		"0 different":    {"color": {}},
		"1001 different": {"color": make([]string, 1001)},
	} {
		c.Categories = list
		if _, err := table.Read(strings.NewReader(cars), c); !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// Describe reports the contents of columns and makes no tensors.
func TestDescribe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cars.csv")
	if err := os.WriteFile(path, []byte(cars), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := table.Describe(path, table.Config{})
	if err != nil {
		t.Fatal(err)
	}
	want := &table.Description{Rows: 4, Columns: []table.Column{
		{Name: "color", Missing: 1, Distinct: 3, Words: []string{"blue", "dark, blue", "red"}},
		{Name: "weight", Missing: 1, Numbers: true, Distinct: 3},
		{Name: "seats", Numbers: true, Whole: true, Distinct: 3},
		{Name: "price", Numbers: true, Distinct: 4},
	}}
	if d.Rows != want.Rows || !reflect.DeepEqual(d.Columns, want.Columns) {
		t.Errorf("%+v", d)
	}
	if k, err := d.Column("-1"); err != nil || k.Name != "price" {
		t.Error(k, err)
	}
	var e *table.Error
	if _, err := d.Column("prize"); !errors.As(err, &e) || e.Name != "prize" || e.Path != path {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("a,b\n1,"+strings.Repeat("x", 3)+"\n2,3,4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Describe(path, table.Config{}); !errors.As(err, &e) || e.Path != path || e.Line != 3 {
		t.Error(err)
	}
}
