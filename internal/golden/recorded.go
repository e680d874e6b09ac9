package golden

import (
	"bytes"
	"embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
)

//go:embed testdata/mlp_adamw.safetensors.gz testdata/optim.safetensors.gz testdata/print.json
var recorded embed.FS

func openRecorded(name string) (*File, error) {
	text, err := recorded.ReadFile("testdata/" + name)
	if err != nil {
		return nil, fmt.Errorf("golden: %w", err)
	}
	return read(bytes.NewReader(text), name)
}

// Optimizers returns the recorded trajectories of torch.optim's optimizers. In each case Op is the
// name of the class, and Args has all arguments. In[0] and In[1] are the initial values of two
// parameters. In[2] and In[3] are their gradients, with the step (0 to 9) as first dimension.
// Out[0] and Out[1] are the parameters after each step, in the same layout.
func Optimizers() (*File, error) { return openRecorded("optim.safetensors.gz") }

// MLP is a recorded training run. The model is a perceptron with layers of 784, 512, 512 and 10
// neurons, and ReLU between the layers (h = relu(x·Wᵀ + b)). The loss is the mean cross-entropy,
// and the optimizer is torch.optim.AdamW.
type MLP struct {
	Params []MLPParam // parameters in the order fc1.weight, fc1.bias, fc2.weight, …
	Steps  int        // number of steps: 50
	Batch  int        // number of samples in a batch: 64

	LearningRate, Beta1, Beta2, Eps, WeightDecay float64

	LossF32 []float32 // loss of each step before its update, computed in float32
	// loss of each step, computed in float64 from the same initial weights and inputs
	LossF64 []float64

	pixels []byte
	labels []int64
}

// MLPParam is one parameter of the model, before and after the run.
type MLPParam struct {
	Name  string
	Shape []int     // shape of the parameter; (out, in) for a weight
	Init  []float32 // initial elements in row-major order

	// These fields describe the parameter after the last step, in each precision. A slice of length
	// l holds l of the parameter's n elements: entry i is the element with the row-major index
	// i·n/l. The sum and the sum of squares are over all n elements.
	FinalF32             []float32
	FinalF64             []float64
	SumF32, SumF64       float64
	SquareF32, SquareF64 float64
}

const mlpPixels = 784

// Input returns the batch of one step: Batch × 784 pixels in [0, 1], row-major,
// and Batch labels in [0, 10).
func (m *MLP) Input(step int) (x []float32, labels []int64) {
	n := m.Batch * mlpPixels
	x = make([]float32, n)
	for i, p := range m.pixels[step*n : (step+1)*n] {
		x[i] = float32(p) / 16
	}
	return x, m.labels[step*m.Batch : (step+1)*m.Batch]
}

// OpenMLP returns the recorded run. It generates the initial weights, and compares them with
// checksums in the file. They are therefore the weights with which PyTorch started.
func OpenMLP() (*MLP, error) {
	f, err := openRecorded("mlp_adamw.safetensors.gz")
	if err != nil {
		return nil, err
	}
	var hyper struct {
		LR          float64    `json:"lr"`
		Betas       [2]float64 `json:"betas"`
		Eps         float64    `json:"eps"`
		WeightDecay float64    `json:"weight_decay"`
	}
	var rows []struct {
		Name      string  `json:"name"`
		Shape     []int   `json:"shape"`
		CRC32     uint32  `json:"crc32"`
		SumF32    float64 `json:"final_sum_f32"`
		SumF64    float64 `json:"final_sum_f64"`
		SquareF32 float64 `json:"final_square_sum_f32"`
		SquareF64 float64 `json:"final_square_sum_f64"`
	}
	if err := json.Unmarshal([]byte(f.Meta["hyper"]), &hyper); err != nil {
		return nil, &FormatError{f.Path, "hyper", err.Error()}
	}
	if err := json.Unmarshal([]byte(f.Meta["parameters"]), &rows); err != nil {
		return nil, &FormatError{f.Path, "parameters", err.Error()}
	}
	tensors := map[string]Tensor{}
	for _, name := range []string{"pixels", "labels", "losses_f32", "losses_f64"} {
		if tensors[name], err = f.Tensor(name); err != nil {
			return nil, err
		}
	}
	pixels := tensors["pixels"]
	if len(pixels.Shape) != 3 || pixels.Shape[2] != mlpPixels {
		return nil, &FormatError{f.Path, "tensor pixels", fmt.Sprintf("shape %v", pixels.Shape)}
	}
	m := &MLP{
		Steps: pixels.Shape[0], Batch: pixels.Shape[1],
		LearningRate: hyper.LR, Beta1: hyper.Betas[0], Beta2: hyper.Betas[1], Eps: hyper.Eps, WeightDecay: hyper.WeightDecay,
		LossF32: tensors["losses_f32"].Float32s(), LossF64: tensors["losses_f64"].Float64s(),
		pixels: pixels.Data, labels: tensors["labels"].Int64s(),
	}
	g := splitmix64(mlpSeed)
	for _, row := range rows {
		n := 1
		for _, d := range row.Shape {
			n *= d
		}
		p := MLPParam{
			Name: row.Name, Shape: row.Shape, Init: g.weights(n),
			SumF32: row.SumF32, SumF64: row.SumF64, SquareF32: row.SquareF32, SquareF64: row.SquareF64,
		}
		if sum := checksum(p.Init); sum != row.CRC32 {
			return nil, &FormatError{f.Path, "parameter " + row.Name, fmt.Sprintf("generated weights have CRC-32 %08x, recorded ones %08x", sum, row.CRC32)}
		}
		f32, err := f.Tensor("final_f32/" + row.Name)
		if err != nil {
			return nil, err
		}
		f64, err := f.Tensor("final_f64/" + row.Name)
		if err != nil {
			return nil, err
		}
		p.FinalF32, p.FinalF64 = f32.Float32s(), f64.Float64s()
		m.Params = append(m.Params, p)
	}
	return m, nil
}

const mlpSeed = 784

// splitmix64 is the generator of Steele, Lea and Flood, "Fast splittable
// pseudorandom number generators" (OOPSLA 2014).
type splitmix64 uint64

func (s *splitmix64) next() uint64 {
	*s += 0x9E3779B97F4A7C15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// weights returns n numbers (k − 2²³)/2²⁸, where k is the upper 24 bits of a number from the
// generator. These are multiples of 2⁻²⁸ in [−1/32, 1/32), which float32 represents exactly.
func (s *splitmix64) weights(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(int64(s.next()>>40)-1<<23) / (1 << 28)
	}
	return out
}

// checksum returns the CRC-32 (IEEE) of the little-endian bytes of v.
func checksum(v []float32) uint32 {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return crc32.ChecksumIEEE(b)
}
