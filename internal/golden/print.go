package golden

import (
	"encoding/json"
	"fmt"
	"math"
)

// Print is a tensor and the text that PyTorch prints for it.
type Print struct {
	Name         string
	DType        string // PyTorch's name without "torch.": "float32", "bool"
	Shape        []int
	Device       string // name of the device: "cpu", "cuda:0"
	RequiresGrad bool
	Floats       []float64 // elements of a floating-point tensor, in row-major order
	Ints         []int64   // elements of an integer or boolean (0, 1) tensor
	Repr         string
}

// Prints returns all recorded tensors with their texts.
func Prints() ([]Print, error) {
	const path = "print.json"
	text, err := recorded.ReadFile("testdata/" + path)
	if err != nil {
		return nil, fmt.Errorf("golden: %w", err)
	}
	var table struct {
		Rows []struct {
			Name         string            `json:"name"`
			DType        string            `json:"dtype"`
			Shape        []int             `json:"shape"`
			Device       string            `json:"device"`
			RequiresGrad bool              `json:"requires_grad"`
			Data         []json.RawMessage `json:"data"`
			Repr         string            `json:"repr"`
		} `json:"rows"`
	}
	if err := json.Unmarshal(text, &table); err != nil {
		return nil, &FormatError{path, "table", err.Error()}
	}
	var out []Print
	for _, row := range table.Rows {
		p := Print{Name: row.Name, DType: row.DType, Shape: row.Shape, Device: row.Device, RequiresGrad: row.RequiresGrad, Repr: row.Repr}
		for _, text := range row.Data {
			if err := p.add(string(text)); err != nil {
				return nil, &FormatError{path, "row " + row.Name, err.Error()}
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// add appends an element that JSON represents as a string, such as "NaN".
func (p *Print) add(text string) error {
	switch p.DType {
	case "float64", "float32", "float16", "bfloat16":
		v, ok := map[string]float64{`"nan"`: math.NaN(), `"inf"`: math.Inf(1), `"-inf"`: math.Inf(-1)}[text]
		if !ok {
			if err := json.Unmarshal([]byte(text), &v); err != nil {
				return err
			}
		}
		p.Floats = append(p.Floats, v)
	case "bool":
		var v bool
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			return err
		}
		n := int64(0)
		if v {
			n = 1
		}
		p.Ints = append(p.Ints, n)
	default:
		var v int64
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			return err
		}
		p.Ints = append(p.Ints, v)
	}
	return nil
}
