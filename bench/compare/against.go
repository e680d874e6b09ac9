package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/train"
)

// peerResult is the result of one variant of the peer: the times of its rounds in seconds, and the
// median of the peer's time divided by our time. A ratio of 2 means that ours is twice as fast.
type peerResult struct {
	Rounds []float64 `json:"rounds,omitempty"`
	Ratio  float64   `json:"ratio,omitempty"`
	Error  string    `json:"error,omitempty"`
}

// A peer is the process that this program compares with, usually PyTorch. It reads one command per
// line and answers each with a line of JSON.
//
//	case NAME  makes the case's variants, warms them up, and reports which of them fail
//	round      measures each variant once, and answers with seconds or the error
//	end        frees the case
type peer struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

// answer is the result of one variant in a reply of the peer.
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

// request sends a line to the peer, and returns its answers by variant.
func (p *peer) request(line string) (m map[string]answer, err error) {
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

// storeAnswers stores the peer's answers, or the error, in the row.
func (r *run) storeAnswers(m map[string]answer, err error) {
	if err != nil {
		m, r.peer = map[string]answer{"": {Error: err.Error()}}, nil
	}
	for name, a := range m {
		v := r.Theirs[name]
		if v == nil {
			v = &peerResult{}
			r.Theirs[name] = v
		}
		if a.Error != "" {
			v.Error = a.Error
		} else {
			v.Rounds = append(v.Rounds, a.Seconds)
		}
	}
}

// peerRound makes the peer measure one round. It waits before and after the round, because threads
// of each side may keep spinning for some milliseconds after their own round.
func (r *run) peerRound() {
	if r.peer != nil {
		time.Sleep(rest)
		r.storeAnswers(r.peer.request("round"))
		time.Sleep(rest)
	}
}

const rest = 20 * time.Millisecond

// ratios computes the median ratio of each variant that was measured in all rounds. For an emulated
// GPU, whose clock is not comparable, it does nothing.
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

// measurePair measures a case alternately with the peer, which may be nil. It reports whether both
// sides have measured everything.
func measurePair(r *run, p *peer, c pairCase) bool {
	r.peer, r.Theirs = p, map[string]*peerResult{}
	if m, err := train.FindGPU(r.Name); err == nil && !r.trial {
		r.Bound = minSeconds(m, c.pieces)
	}
	if p != nil {
		r.storeAnswers(p.request("case " + c.name))
	}
	err := r.measureCase(c.benchCase)
	if r.peer != nil {
		if _, e := p.request("end"); e != nil {
			r.storeAnswers(nil, e)
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

// runAgainst runs the command "against".
func runAgainst(args []string) {
	f := flag.NewFlagSet("against", flag.ExitOnError)
	trial := f.Bool("trial", false, "small sizes, few repetitions")
	only := f.String("only", "", "the cases whose names this expression matches")
	seconds := f.Float64("seconds", 0.3, "of measuring, for each round of a side")
	rounds := f.Int("rounds", 5, "of each case")
	graphs := f.Bool("graphs", false, "training steps are captured and replayed")
	busy := f.Int("load", 0, "how many processes spin beside both sides")
	_ = f.Parse(args) // on an error, Parse ends the program
	pattern, err := regexp.Compile(*only)
	if err != nil {
		log.Fatalf("-only: %v", err)
	}
	if f.NArg() == 0 || *rounds < 1 {
		log.Fatal("usage: compare against [-trial] [-only REGEXP] [-seconds 0.3] [-rounds 5] [-load 0] [-graphs] DEVICE [COMMAND …]")
	}
	for range *busy {
		if _, err := startPeer([]string{os.Args[0], "spin"}); err != nil {
			log.Fatal(err)
		}
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
	list := pairs()
	if dev.Info().Kind == "cpu" {
		list = nil
		for _, c := range casesOn(dev) {
			list = append(list, pairCase{c, nil})
		}
	}
	logs, compared := 0.0, 0
	for _, c := range list {
		if !pattern.MatchString(c.name) {
			continue
		}
		measured++
		r := newRun(dev, c.benchCase, *seconds, *trial)
		r.rounds, r.graphs = *rounds, *graphs
		if !measurePair(r, other, c) {
			failed = append(failed, c.name)
		}
		if q := r.fastest(); q > 0 {
			logs, compared = logs+math.Log(q), compared+1
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
	if compared > 0 {
		fmt.Fprintf(os.Stderr, "geometric mean of %d cases: %.2f times as fast as the fastest variant\n", compared, math.Exp(logs/float64(compared)))
	}
	if len(failed) > 0 {
		log.Fatalf("%d cases failed: %s", len(failed), strings.Join(failed, ", "))
	}
}

// fastest returns the ratio of the peer's fastest variant, or 0 if there is none.
func (r *run) fastest() (ratio float64) {
	for _, v := range r.Theirs {
		if v.Ratio > 0 && (ratio == 0 || v.Ratio < ratio) {
			ratio = v.Ratio
		}
	}
	return ratio
}

// spin keeps a processor busy until its standard input ends. The input ends at the latest when the
// parent process ends.
func spin() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for i := 0; ; i++ {
	}
}
