//go:build js && wasm

package main

import (
	"fmt"
	"syscall/js"

	"github.com/flambeau-go/flambeau/tensor"
)

// main runs in a worker of the page (worker.js) and handles one request at a time, so that the page
// stays responsive. Between two epochs of a training, it handles other requests.
func main() {
	requests := make(chan js.Value, 1)
	js.Global().Set("onmessage", js.FuncOf(func(_ js.Value, args []js.Value) any {
		// The send never blocks, because a message arrives only while Go waits for one.
		requests <- args[0].Get("data")
		return nil
	}))
	p := &program{}
	var err error
	if p.digits, err = newClassifier(); err != nil {
		tell("error", err.Error())
		return
	}
	tell("ready", map[string]any{"known": p.digits.train.Len(), "held": p.digits.test.Len()})
	for r := range requests {
		var answered error
		if err := tensor.Try(func() { answered = p.answer(r) }); err != nil {
			answered = err
		}
		if answered != nil {
			tell("error", answered.Error())
		}
	}
}

type program struct {
	digits *classifier
	steps  int
	opened inspector
}

// tell sends a value with a name to the page.
func tell(name string, value any) {
	js.Global().Call("postMessage", js.ValueOf(map[string]any{name: value}))
}

func (p *program) answer(r js.Value) error {
	switch what := r.Get("what").String(); what {
	case "epoch":
		return p.epoch()
	case "classify":
		p.classify(r.Get("ink"))
		return nil
	case "open":
		return p.opened.open(r.Get("file"))
	case "show":
		return p.opened.show(r.Get("name").String())
	default:
		return fmt.Errorf("the page asks for %q", what)
	}
}

func (p *program) epoch() error {
	err := p.digits.epoch(func(loss float64) {
		p.steps++
		tell("step", map[string]any{"number": p.steps, "loss": loss})
	})
	if err != nil {
		return err
	}
	accuracy, err := p.digits.accuracy()
	if err == nil {
		tell("epoch", map[string]any{"steps": p.steps, "accuracy": accuracy})
	}
	return err
}

func (p *program) classify(drawing js.Value) {
	ink := make([]byte, drawing.Get("length").Int())
	js.CopyBytesToGo(ink, drawing)
	pixels := shrink(ink, 256)
	if pixels == nil {
		tell("seen", nil)
		return
	}
	seen, odds := []any{}, []any{}
	for _, v := range pixels {
		seen = append(seen, v)
	}
	for _, v := range p.digits.classify(pixels) {
		odds = append(odds, v)
	}
	tell("seen", map[string]any{"pixels": seen, "odds": odds})
}
