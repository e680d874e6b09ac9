package profile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A TableOption changes how a table looks.
type TableOption func(*tableOptions)

type tableOptions struct {
	sortBy string
	rows   int
	header string
	width  int
	unit   string
}

// SortBy sorts the rows in descending order by a key. torch's keys are "cpu_time" and "cuda_time"
// (averages), "cpu_time_total", "cuda_time_total", "self_cpu_time_total", "self_cuda_time_total",
// "cpu_memory_usage", "cuda_memory_usage", "self_cpu_memory_usage", "self_cuda_memory_usage",
// "count", "flops". "device" may replace "cuda". There are also the keys "bytes", and "key", which
// sorts by name.
func SortBy(key string) TableOption { return func(o *tableOptions) { o.sortBy = key } }

// Rows limits the number of rows: torch's row_limit. The default is 100. A number below 1 means all
// rows.
func Rows(n int) TableOption { return func(o *tableOptions) { o.rows = n } }

// Header prints a line above the table.
func Header(line string) TableOption { return func(o *tableOptions) { o.header = line } }

// NameWidth limits the width of names: torch's max_name_column_width. The default is 55. The column
// of shapes is at least 80 characters wide, and wider if n is larger.
func NameWidth(n int) TableOption { return func(o *tableOptions) { o.width = n } }

// TimeUnit prints all times in the unit "s", "ms" or "us": torch's time_unit. By default each time
// has a suitable unit.
func TimeUnit(unit string) TableOption { return func(o *tableOptions) { o.unit = unit } }

// sortKeys maps each sort key to a function that returns its value.
var sortKeys = map[string]func(a *Average) int64{
	"cpu_time":                 func(a *Average) int64 { return int64(a.CPUTime()) },
	"device_time":              func(a *Average) int64 { return int64(a.CUDATime()) },
	"cpu_time_total":           func(a *Average) int64 { return int64(a.CPUTotal) },
	"device_time_total":        func(a *Average) int64 { return int64(a.CUDATotal) },
	"self_cpu_time_total":      func(a *Average) int64 { return int64(a.CPUSelf) },
	"self_device_time_total":   func(a *Average) int64 { return int64(a.CUDASelf) },
	"cpu_memory_usage":         func(a *Average) int64 { return int64(a.CPUMemory) },
	"device_memory_usage":      func(a *Average) int64 { return int64(a.CUDAMemory) },
	"self_cpu_memory_usage":    func(a *Average) int64 { return int64(a.CPUMemorySelf) },
	"self_device_memory_usage": func(a *Average) int64 { return int64(a.CUDAMemorySelf) },
	"count":                    func(a *Average) int64 { return int64(a.Count) },
	"flops":                    func(a *Average) int64 { return int64(a.FLOPs) },
	"bytes":                    func(a *Average) int64 { return int64(a.Bytes) },
	"key":                      nil,
}

// Sort sorts the rows as [SortBy] does. For an unknown key the error is an *[Error] that wraps
// [ErrKey] and lists the keys.
func (a *Averages) Sort(key string) error {
	less, ok := sortKeys[strings.Replace(key, "cuda", "device", 1)]
	switch {
	case !ok:
		var known []string
		for k := range sortKeys {
			known = append(known, strings.Replace(k, "device", "cuda", 1))
		}
		slices.Sort(known)
		return &Error{Op: "table", Msg: fmt.Sprintf("cannot sort by %q; known are %s", key, strings.Join(known, ", ")), Err: ErrKey}
	case less == nil:
		slices.SortStableFunc(a.Rows, func(x, y Average) int { return cmp.Compare(x.Key, y.Key) })
	default:
		slices.SortStableFunc(a.Rows, func(x, y Average) int { return cmp.Compare(less(&y), less(&x)) })
	}
	return nil
}

// columnOf is a column of a table whose rows are of type T.
type columnOf[T any] struct {
	title string
	left  bool
	cell  func(v *T) string
	lines func(v *T) []string // the lines of a cell that has several; used in place of cell
	// greatest width of a cell; 0 means no limit; a column is at least 12 wide
	width int
}

type column = columnOf[Average]

// Table formats the rows as torch does. An unknown sort key is an error.
func (a *Averages) Table(opts ...TableOption) (string, error) {
	o := tableOptions{rows: 100, width: 55}
	for _, f := range opts {
		f(&o)
	}
	if o.sortBy != "" {
		if err := a.Sort(o.sortBy); err != nil {
			return "", err
		}
	}
	write := timeString
	switch unit, ok := timeUnits[o.unit]; {
	case ok:
		write = func(t time.Duration) string { return fmt.Sprintf("%.3f%s", float64(t)/float64(unit), o.unit) }
	case o.unit != "":
		return "", &Error{Op: "table", Msg: fmt.Sprintf("no unit of time %q; known are s, ms and us", o.unit), Err: ErrKey}
	}
	total := a.Total()
	rows := a.Rows
	if o.rows > 0 && len(rows) > o.rows {
		rows = rows[:o.rows]
	}
	var b strings.Builder
	layOut(&b, a.columns(&total, o.width, write), rows)
	if o.header != "" {
		wide, _, _ := strings.Cut(b.String(), "\n")
		text := strings.Repeat("=", len(wide)) + "\n" + o.header + "\n" + b.String()
		b.Reset()
		b.WriteString(text)
	}
	if a.o.CPU {
		fmt.Fprintf(&b, "Self CPU time total: %s\n", write(total.CPUSelf))
	}
	if total.CUDASelf > 0 {
		fmt.Fprintf(&b, "Self CUDA time total: %s\n", write(total.CUDASelf))
	}
	b.WriteString(noteLines(a.notes))
	return b.String(), nil
}

var timeUnits = map[string]time.Duration{"s": time.Second, "ms": time.Millisecond, "us": time.Microsecond}

func (a *Averages) columns(total *Average, width int, timeString func(time.Duration) string) []column {
	what := a.keyName
	if what == "" {
		what = "Name"
	}
	list := []column{{title: what, cell: func(a *Average) string { return a.Key }, width: width}}
	add := func(title string, cell func(a *Average) string) {
		list = append(list, column{title: title, cell: cell})
	}
	var gpuMem, shapes, stacks bool
	for i := range a.Rows {
		v := &a.Rows[i]
		gpuMem = gpuMem || v.CUDAMemory != 0 || v.CUDAMemorySelf != 0
		shapes = shapes || len(v.Shapes) > 0
		stacks = stacks || len(v.Stack) > 0
	}
	if a.o.CPU {
		add("Self CPU %", func(a *Average) string { return percent(a.CPUSelf, total.CPUSelf) })
		add("Self CPU", func(a *Average) string { return timeString(a.CPUSelf) })
		add("CPU total %", func(a *Average) string { return percent(a.CPUTotal, total.CPUSelf) })
		add("CPU total", func(a *Average) string { return timeString(a.CPUTotal) })
		add("CPU time avg", func(a *Average) string { return timeString(a.CPUTime()) })
	}
	if total.CUDASelf > 0 {
		add("Self CUDA", func(a *Average) string { return timeString(a.CUDASelf) })
		add("Self CUDA %", func(a *Average) string { return percent(a.CUDASelf, total.CUDASelf) })
		add("CUDA total", func(a *Average) string { return timeString(a.CUDATotal) })
		add("CUDA time avg", func(a *Average) string { return timeString(a.CUDATime()) })
	}
	if a.o.Memory {
		add("CPU Mem", func(a *Average) string { return bytesString(a.CPUMemory) })
		add("Self CPU Mem", func(a *Average) string { return bytesString(a.CPUMemorySelf) })
		if gpuMem {
			add("CUDA Mem", func(a *Average) string { return bytesString(a.CUDAMemory) })
			add("Self CUDA Mem", func(a *Average) string { return bytesString(a.CUDAMemorySelf) })
		}
	}
	add("# of Calls", func(a *Average) string { return fmt.Sprint(a.Count) })
	if shapes {
		list = append(list, column{title: "Input Shapes", cell: func(a *Average) string { return shapesString(a.Shapes) }, width: max(width, 80)})
	}
	if stacks {
		list = append(list, column{title: "Source Location", left: true, lines: func(a *Average) []string { return a.Stack }, width: 75})
	}
	if a.o.FLOPs {
		most := 0
		for i := range a.Rows {
			most = max(most, a.Rows[i].FLOPs)
		}
		// Show FLOPs in a unit that suits the largest value. torch's unit suits the smallest, but
		// here even small operations are counted.
		if most > 0 {
			scale, unit := 1.0, 0
			for float64(most) >= 1e6*scale && unit < 5 {
				scale *= 1000
				unit++
			}
			add("Total "+strings.TrimSpace(string(" KMGTP"[unit]))+"FLOPs", func(a *Average) string {
				if a.FLOPs <= 0 {
					return "--"
				}
				return fmt.Sprintf("%.3f", float64(a.FLOPs)/scale)
			})
		}
	}
	return list
}

// layOut writes a table with two spaces between columns, and lines above and below.
func layOut[T any](b *strings.Builder, columns []columnOf[T], rows []T) {
	// texts of the cells, by row, line within the row, and column
	cells := make([][][]string, len(rows))
	for k := range columns {
		c := &columns[k]
		most := max(len(c.title), 12)
		for i := range rows {
			var list []string
			if c.lines != nil {
				list = c.lines(&rows[i])
			} else {
				list = []string{c.cell(&rows[i])}
			}
			for n, s := range list {
				s = cut(s, c.width)
				if n == len(cells[i]) {
					cells[i] = append(cells[i], make([]string, len(columns)))
				}
				cells[i][n][k] = s
				most = max(most, len([]rune(s)))
			}
		}
		c.width = most
	}
	line := func(cell func(k int) string) {
		var l strings.Builder
		for k := range columns {
			if k > 0 {
				l.WriteString("  ")
			}
			s := cell(k)
			pad := strings.Repeat(" ", columns[k].width-len([]rune(s)))
			if columns[k].left {
				l.WriteString(s + pad)
			} else {
				l.WriteString(pad + s)
			}
		}
		b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	rule := func() { line(func(k int) string { return strings.Repeat("-", columns[k].width) }) }
	rule()
	line(func(k int) string { return columns[k].title })
	rule()
	for i := range rows {
		for _, l := range cells[i] {
			line(func(k int) string { return l[k] })
		}
	}
	rule()
}

// cut shortens s to n characters. If n is 0, it does not shorten s. It also replaces characters
// that would break the line.
func cut(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
	if r := []rune(s); n > 3 && len(r) > n {
		return string(r[:n-3]) + "..."
	}
	return s
}

// timeString formats a time as torch does.
func timeString(t time.Duration) string {
	us := float64(t) / 1e3
	switch {
	case us >= 1e6:
		return fmt.Sprintf("%.3fs", us/1e6)
	case us >= 1e3:
		return fmt.Sprintf("%.3fms", us/1e3)
	}
	return fmt.Sprintf("%.3fus", us)
}

func percent(t, of time.Duration) string {
	if of == 0 {
		return "0.00%"
	}
	return fmt.Sprintf("%.2f%%", 100*float64(t)/float64(of))
}

// bytesString formats a number of bytes as torch does.
func bytesString(n int) string {
	a := n
	if a < 0 {
		a = -a
	}
	switch {
	case a >= 1<<30:
		return fmt.Sprintf("%.2f GB", float64(n)/(1<<30))
	case a >= 1<<20:
		return fmt.Sprintf("%.2f MB", float64(n)/(1<<20))
	case a >= 1<<10:
		return fmt.Sprintf("%.2f KB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
