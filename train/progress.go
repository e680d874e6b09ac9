package train

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// A Progress shows how far a training is: a bar that is redrawn on a terminal, a line now and then
// elsewhere. It is used by one goroutine.
type Progress struct {
	w        io.Writer
	terminal bool
	start    time.Time
	from     int
	drawn    time.Time
	width    int
}

// NewProgress returns one that writes to w, which may be a terminal.
func NewProgress(w io.Writer) *Progress {
	f, ok := w.(*os.File)
	return &Progress{w: w, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

// Begin says from which step on the time is counted.
func (p *Progress) Begin(step int) { p.start, p.from = time.Now(), step }

// Step reports that step n of total is done, counted from 1; total 0 means that it is not known. On
// a terminal the bar is redrawn ten times a second; elsewhere this does nothing.
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
		left := time.Duration(float64(p.drawn.Sub(p.start)) / float64(max(n-p.from, 1)) * float64(total-n)).Round(time.Second)
		if text != "" {
			text += "  "
		}
		line = fmt.Sprintf("[%s%s] %d/%d  %s%v left", strings.Repeat("█", full), strings.Repeat("·", cells-full), n, total, text, left)
	}
	if f, ok := p.w.(*os.File); ok {
		// a line that wraps could not be drawn over
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

// part returns the progress of something within, which is drawn in the place of p until p is drawn
// again.
func (p *Progress) part() *Progress {
	now := time.Now()
	return &Progress{w: p.w, terminal: p.terminal, width: p.width, start: now, drawn: now}
}

// lineEvery is how often tell prints a line where there is no terminal.
var lineEvery = 10 * time.Second

// tell is Step, and a line now and then where there is no terminal.
func (p *Progress) tell(n, total int, what string) {
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

// Line prints a line of text, above the bar where there is one.
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
