package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"regexp"
	"strings"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/train"
)

// theirs is the result of one variant of the peer. It has the times of its rounds in seconds, and
// the median ratio of the peer's time to our time. A ratio of 2 means that our side is twice as
// fast.
type theirs struct {
	Rounds []float64 `json:"rounds,omitempty"`
	Ratio  float64   `json:"ratio,omitempty"`
	Error  string    `json:"error,omitempty"`
}

// A peer is the other side of the comparison. It is a process that reads one command per line and
// answers each command with a line of JSON.
//
//	case NAME  makes the case's variants, warms them up, and reports which of them fail
//	round      measures each variant once, and answers with seconds or the error
//	end        frees the case
type peer struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

// answer is the result of one variant in an answer of the peer.
type answer struct {
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error"`
}

func startPeer(command []string) (*peer, error) {
	c := exec.Command(command[0], command[1:]...)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	return &peer{c, in, bufio.NewReader(out)}, nil
}

// ask sends a line, and returns the answers by variant.
func (p *peer) ask(line string) (m map[string]answer, err error) {
	if _, err = io.WriteString(p.in, line+"\n"); err != nil {
		return nil, fmt.Errorf("the other side has ended: %w", err)
	}
	text, err := p.out.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("no answer to %q: %w", line, err)
	}
	if err = json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("the answer to %q: %w: %s", line, err, clip(string(text)))
	}
	return m, nil
}

func (p *peer) close() error {
	if err := p.in.Close(); err != nil {
		return err
	}
	return p.command.Wait()
}

// answered stores the peer's answer to a line in the row.
func (r *run) answered(m map[string]answer, err error) {
	if err != nil {
		m, r.peer = map[string]answer{"": {Error: err.Error()}}, nil
	}
	for name, a := range m {
		v := r.Theirs[name]
		if v == nil {
			v = &theirs{}
			r.Theirs[name] = v
		}
		if a.Error != "" {
			v.Error = a.Error
		} else {
			v.Rounds = append(v.Rounds, a.Seconds)
		}
	}
}

// turn asks the peer to measure one round.
func (r *run) turn() {
	if r.peer != nil {
		r.answered(r.peer.ask("round"))
	}
}

// ratios computes the median ratio of each variant that was measured in all rounds. It does nothing
// for an emulated GPU, whose clock is not comparable.
func (r *run) ratios() {
	for _, v := range r.Theirs {
		if r.Emulated || v.Error != "" || len(v.Rounds) != len(r.Rounds) || len(r.Rounds) == 0 {
			continue
		}
		var list []float64
		for k, seconds := range v.Rounds {
			list = append(list, seconds/r.Rounds[k])
		}
		v.Ratio = median(list)
	}
}

// measurePair measures a case in alternation with the peer, which may be nil. It returns whether
// both sides measured everything.
func measurePair(r *run, p *peer, c pairCase) bool {
	r.peer, r.Theirs = p, map[string]*theirs{}
	if m, err := train.FindGPU(r.Name); err == nil && !r.trial {
		r.Bound = least(m, c.pieces)
	}
	if p != nil {
		r.answered(p.ask("case " + c.name))
	}
	err := r.carryOut(c.benchCase)
	if r.peer != nil {
		if _, e := p.ask("end"); e != nil {
			r.answered(nil, e)
		}
	}
	r.ratios()
	for name, v := range r.Theirs {
		if v.Error != "" {
			fmt.Fprintf(os.Stderr, "%-8s %-28s %s: %s\n", "", r.Case, name, clip(v.Error))
			err = fmt.Errorf("%s", v.Error)
			continue
		}
		if v.Ratio == 0 {
			fmt.Fprintf(os.Stderr, "%-8s %-28s %12s: %d rounds\n", "", r.Case, name, len(v.Rounds))
			continue
		}
		fmt.Fprintf(os.Stderr, "%-8s %-28s %12.2f times as fast as %s\n", "", r.Case, v.Ratio, name)
	}
	return err == nil
}

// against runs the command "against".
func against(args []string) {
	f := flag.NewFlagSet("against", flag.ExitOnError)
	trial := f.Bool("trial", false, "small sizes, few repetitions")
	only := f.String("only", "", "the cases whose names this expression matches")
	seconds := f.Float64("seconds", 0.3, "of measuring, for each round of a side")
	rounds := f.Int("rounds", 5, "of each case")
	_ = f.Parse(args) // on an error, Parse ends the program
	pattern, err := regexp.Compile(*only)
	if err != nil {
		log.Fatalf("-only: %v", err)
	}
	if f.NArg() == 0 || *rounds < 1 {
		log.Fatal("usage: compare against [-trial] [-only REGEXP] [-seconds 0.3] [-rounds 5] DEVICE [COMMAND …]")
	}
	dev, err := device.Open(f.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	var other *peer
	if command := f.Args()[1:]; len(command) > 0 {
		if other, err = startPeer(command); err != nil {
			log.Fatal(err)
		}
	}
	out := json.NewEncoder(os.Stdout)
	failed, measured := []string{}, 0
	for _, c := range pairs() {
		if !pattern.MatchString(c.name) {
			continue
		}
		measured++
		r := newRun(dev, c.benchCase, *seconds, *trial)
		r.rounds = *rounds
		if !measurePair(r, other, c) {
			failed = append(failed, c.name)
		}
		if err := out.Encode(r.row); err != nil {
			log.Fatal(err)
		}
	}
	if other != nil {
		if err := other.close(); err != nil {
			failed = append(failed, "the other side: "+err.Error())
		}
	}
	if measured == 0 {
		log.Fatalf("no case matches -only %q", *only)
	}
	if len(failed) > 0 {
		log.Fatalf("%d cases failed: %s", len(failed), strings.Join(failed, ", "))
	}
}
