package train

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// A Progress shows the progress of a training as a bar on a terminal. Elsewhere it prints a line
// from time to time. Use it from one goroutine only.
type Progress struct {
	w        io.Writer
	terminal bool
	start    time.Time
	first    int
	drawn    time.Time
	width    int
}

// NewProgress returns a Progress that writes to w, which may be a terminal.
func NewProgress(w io.Writer) *Progress {
	f, ok := w.(*os.File)
	return &Progress{w: w, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

// Begin starts the clock for the estimate of the remaining time. step is the number of steps that
// are done already.
func (p *Progress) Begin(step int) { p.start, p.first = time.Now(), step }

// Step reports that n of total steps are done. If the number of all steps is not known, total is 0.
// On a terminal Step redraws the bar at most ten times a second. Elsewhere it does nothing.
func (p *Progress) Step(n, total int, text string) {
	if !p.due(n, total) {
		return
	}
	p.drawn = time.Now()
	if p.start.IsZero() {
		p.start = p.drawn
	}
	line := strings.TrimSpace(fmt.Sprintf("step %d  %s", n, text))
	if total > 0 {
		const cells = 24
		full := min(max(n, 0)*cells/total, cells)
		left := time.Duration(float64(p.drawn.Sub(p.start)) / float64(max(n-p.first, 1)) * float64(total-n)).Round(time.Second)
		if text != "" {
			text += "  "
		}
		line = fmt.Sprintf("[%s%s] %d/%d  %s%v left", strings.Repeat("█", full), strings.Repeat("·", cells-full), n, total, text, left)
	}
	if f, ok := p.w.(*os.File); ok {
		// The line is cut, because a bar that wraps to a second line cannot be overwritten.
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 1 {
			r := []rune(line)
			line = string(r[:min(len(r), width-1)])
		}
	}
	pad := max(p.width-len([]rune(line)), 0)
	p.width = len([]rune(line))
	fmt.Fprint(p.w, "\r"+line+strings.Repeat(" ", pad))
}

// due reports whether Step would draw.
func (p *Progress) due(n, total int) bool {
	return p.terminal && (n == total || time.Since(p.drawn) >= 100*time.Millisecond)
}

// part returns a Progress for a task inside the training, such as an evaluation. Its bar replaces
// the bar of p until p draws again.
func (p *Progress) part() *Progress {
	now := time.Now()
	return &Progress{w: p.w, terminal: p.terminal, width: p.width, start: now, drawn: now}
}

// lineEvery is the time between two lines that update prints if the output is no terminal.
var lineEvery = 10 * time.Second

// update does the same as Step on a terminal. Elsewhere it prints a line from time to time.
func (p *Progress) update(n, total int, what string) {
	if p.terminal {
		p.Step(n, total, what)
		return
	}
	if time.Since(p.drawn) < lineEvery {
		return
	}
	p.drawn = time.Now()
	of := ""
	if total > 0 {
		left := time.Duration(float64(p.drawn.Sub(p.start)) / float64(n) * float64(max(total-n, 0))).Round(time.Second)
		of = fmt.Sprintf(" of %d, %v left", total, left)
	}
	p.Line(fmt.Sprintf("%s: batch %d%s", what, n, of))
}

// Line prints a line of text, above the bar if there is one.
func (p *Progress) Line(text string) {
	if p.terminal {
		fmt.Fprint(p.w, "\r"+text+strings.Repeat(" ", max(p.width-len([]rune(text)), 0))+"\n")
		p.width = 0
		return
	}
	fmt.Fprintln(p.w, text)
}

// Done ends the bar.
func (p *Progress) Done() {
	if p.terminal && p.width > 0 {
		fmt.Fprintln(p.w)
		p.width = 0
	}
}
