//go:build js && wasm

package main

import (
	"fmt"
	"syscall/js"

	"github.com/flambeau-go/flambeau/safetensors"
)

// An inspector has the file that the visitor chose last, or nil.
type inspector struct{ file *safetensors.File }

// open lists the tensors of a file that the visitor chose, through the file system that worker.js
// provides.
func (f *inspector) open(picked js.Value) (err error) {
	if f.file != nil {
		f.file.Close()
		f.file = nil
	}
	js.Global().Set("picked", picked)
	if f.file, err = safetensors.Open("/" + picked.Get("name").String()); err != nil {
		return err
	}
	rows := []any{}
	for _, i := range f.file.Infos() {
		rows = append(rows, map[string]any{"name": i.Name, "type": i.DType, "shape": fmt.Sprint(i.Shape), "bytes": i.Bytes})
	}
	notes := map[string]any{}
	for k, v := range f.file.Metadata() {
		notes[k] = v
	}
	tell("file", map[string]any{"rows": rows, "notes": notes})
	return nil
}

func (f *inspector) show(name string) error {
	x, err := f.file.Tensor(name)
	if err != nil {
		return err
	}
	defer x.Free()
	tell("values", map[string]any{"name": name, "text": x.String()})
	return nil
}
