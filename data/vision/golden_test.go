package vision

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/internal/golden"
)

func imageOf(t golden.Tensor) *Image {
	m := &Image{C: t.Shape[0], H: t.Shape[1], W: t.Shape[2]}
	if t.DType == "U8" {
		m.U8 = append(m.U8, t.Data...)
	} else {
		m.F32 = append(m.F32, t.Float32s()...)
	}
	return m
}

var modes = map[string]Interpolation{
	"bilinear": Bilinear, "bicubic": Bicubic, "nearest": Nearest, "bilinear plain": BilinearPlain, "bicubic plain": BicubicPlain,
}

var padModes = map[string]PadMode{"constant": Constant, "edge": Edge, "reflect": Reflect, "symmetric": Symmetric}

// compute applies the transform of a golden case to m.
func compute(t *testing.T, c golden.Case, m *Image) *Image {
	t.Helper()
	a := c.Args
	var f Transform
	switch c.Op {
	case "resize_to":
		f = ResizeTo(a.Int("h"), a.Int("w"), modes[a.Text("mode")])
	case "resize":
		f = Resize(a.Int("size"), modes[a.Text("mode")])
	case "resized_crop":
		return m.resample(rect{a.Int("top"), a.Int("left"), a.Int("h"), a.Int("w")}, a.Int("size"), a.Int("size"), modes[a.Text("mode")])
	case "center_crop":
		f = CenterCrop(a.Int("size"))
	case "pad":
		p := a.Ints("padding")
		f = Pad(p[0], p[1], p[2], p[3], padModes[a.Text("mode")], float32(a.Float("fill")))
	case "rotate":
		d := a.Float("degrees")
		f = RandomRotation(Rotation{From: d, To: d, How: modes[a.Text("mode")], Fill: float32(a.Float("fill"))})
	case "grayscale":
		f = Grayscale(a.Int("channels"))
	case "normalize":
		f = Normalize(a.Floats("mean"), a.Floats("std"))
	case "to_tensor":
		f = ToTensor()
	case "brightness", "contrast", "saturation":
		m.adjust(map[string]int{"brightness": 0, "contrast": 1, "saturation": 2}[c.Op], a.Float("factor"))
		return m
	case "hue":
		m.hue(a.Float("turn"))
		return m
	default:
		t.Fatalf("case %s %s is not computed", c.Op, c.Name)
	}
	m, err := f(m, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		t.Fatal(c.Op, c.Name, err)
	}
	return m
}

// Results equal torchvision's results for tensors. Floating-point values may differ by a few ulp of
// 1. Bytes may differ only if the exact value is near the border between two bytes.
func TestGolden(t *testing.T) {
	file, err := golden.Open("testdata/transforms.safetensors.gz")
	if err != nil {
		t.Fatal(err)
	}
	offBytes, all := 0, 0
	for _, c := range file.Cases {
		m := compute(t, c, imageOf(c.In[0].Base))
		want := c.Out[0].F32
		if s := want.Shape; m.C != s[0] || m.H != s[1] || m.W != s[2] || (m.U8 != nil) != (want.DType == "U8") || len(m.U8)+len(m.F32) != m.C*m.H*m.W {
			t.Errorf("%s %s: %d×%d×%d, want %s %v", c.Op, c.Name, m.C, m.H, m.W, want.DType, s)
			continue
		}
		worst, off := 0.0, 0
		exact := want.Float64s()
		for i, v := range m.U8 {
			e := math.Abs(float64(v) - exact[i])
			worst = max(worst, e)
			if e != 0 {
				off++
			}
		}
		for i, v := range m.F32 {
			worst = max(worst, math.Abs(float64(v)-exact[i]))
		}
		limit := 1.0
		if m.F32 != nil {
			limit = 3e-6
		}
		if worst > limit || off*30 > len(m.U8) {
			t.Errorf("%s %s: off by %v, %d bytes of %d", c.Op, c.Name, worst, off, len(m.U8))
		}
		offBytes, all = offBytes+off, all+len(m.U8)
	}
	t.Logf("%d cases; %d of %d bytes differ, by 1", len(file.Cases), offBytes, all)
	if offBytes*1000 > all {
		t.Errorf("%d of %d bytes differ", offBytes, all)
	}
}

// Decoded images have Pillow's pixels. The pixels of a JPEG may differ slightly, because JPEG
// decoders round in several places.
func TestGoldenPictures(t *testing.T) {
	file, err := golden.Open("testdata/pictures.safetensors.gz")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range file.Cases {
		m, err := Decode{Gray: c.Args.Text("mode") == "L"}.Read(bytes.NewReader(c.In[0].Base.Data))
		if err != nil {
			t.Errorf("%s %s: %v", c.Op, c.Name, err)
			continue
		}
		want := c.Out[0].F32
		if s := want.Shape; m.C != s[0] || m.H != s[1] || m.W != s[2] {
			t.Errorf("%s %s: %d×%d×%d, want %v", c.Op, c.Name, m.C, m.H, m.W, s)
			continue
		}
		worst, sum := 0, 0
		for i, v := range m.U8 {
			e := int(v) - int(want.Data[i])
			worst, sum = max(worst, e, -e), sum+e*e
		}
		t.Logf("%s %s: worst %d, mean square %v", c.Op, c.Name, worst, float64(sum)/float64(len(m.U8)))
		if c.Op == "jpeg" && (worst > 3 || sum*5 > len(m.U8)) || c.Op != "jpeg" && worst != 0 {
			t.Errorf("%s %s: off by %d, sum of squares %d of %d bytes", c.Op, c.Name, worst, sum, len(m.U8))
		}
	}
}
