package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// A progress shows how far a training is: a bar that is redrawn on a terminal, a line now and then elsewhere.
type progress struct {
	w        io.Writer
	terminal bool
	total    int
	start    time.Time
	drawn    time.Time
	width    int
}

func newProgress(w io.Writer, terminal bool, total int) *progress {
	return &progress{w: w, terminal: terminal, total: total, start: time.Now()}
}

// step reports step n, counted from 1. On a terminal the bar is redrawn ten times a second.
func (p *progress) step(n int, text string) {
	if !p.terminal || n < p.total && time.Since(p.drawn) < 100*time.Millisecond {
		return
	}
	p.drawn = time.Now()
	const cells = 24
	full := n * cells / max(p.total, 1)
	left := time.Duration(float64(time.Since(p.start)) / float64(max(n, 1)) * float64(p.total-n)).Round(time.Second)
	line := fmt.Sprintf("[%s%s] %d/%d  %s  %v left", strings.Repeat("█", full), strings.Repeat("·", cells-full), n, p.total, text, left)
	pad := max(p.width-len([]rune(line)), 0)
	p.width = len([]rune(line))
	fmt.Fprint(p.w, "\r"+line+strings.Repeat(" ", pad))
}

// line prints a line of text beside the bar, only where there is no bar or always.
func (p *progress) line(text string) {
	if p.terminal {
		fmt.Fprint(p.w, "\r"+text+strings.Repeat(" ", max(p.width-len([]rune(text)), 0))+"\n")
		p.width = 0
		return
	}
	fmt.Fprintln(p.w, text)
}

// done ends the bar.
func (p *progress) done() {
	if p.terminal && p.width > 0 {
		fmt.Fprintln(p.w)
		p.width = 0
	}
}
