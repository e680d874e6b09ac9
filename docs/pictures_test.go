package docs_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// A drawing is an SVG image with a white background, so that it is legible on pages of any color.
type drawing struct {
	strings.Builder
	width, height int
}

func draw(width, height int) *drawing {
	d := &drawing{width: width, height: height}
	fmt.Fprintf(d, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"14\">\n", width, height)
	d.box(0, 0, width, height, "#ffffff", "none")
	return d
}

func (d *drawing) box(x, y, w, h int, fill, stroke string) {
	fmt.Fprintf(d, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"8\" fill=\"%s\" stroke=\"%s\"/>\n", x, y, w, h, fill, stroke)
}

func (d *drawing) text(x, y int, weight, s string) {
	fmt.Fprintf(d, "<text x=\"%d\" y=\"%d\" font-weight=\"%s\" fill=\"#1f2933\">%s</text>\n", x, y, weight, s)
}

func (d *drawing) code(x, y int, s string) {
	fmt.Fprintf(d, "<text x=\"%d\" y=\"%d\" font-family=\"monospace\" fill=\"#1f2933\">%s</text>\n", x, y, s)
}

// arrow draws a curved arrow that starts and ends horizontally.
func (d *drawing) arrow(x1, y1, x2, y2 int, color string) {
	m := (x1 + x2) / 2
	fmt.Fprintf(d, "<path d=\"M%d %dC%d %d %d %d %d %d\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n", x1, y1, m, y1, m, y2, x2-6, y2, color)
	fmt.Fprintf(d, "<path d=\"M%d %dl-8 -5v10z\" fill=\"%s\"/>\n", x2, y2, color)
}

func (d *drawing) done() string { return d.String() + "</svg>\n" }

// scopes draws two steps of a training inside the root scope.
func scopes() string {
	d := draw(760, 300)
	d.box(10, 10, 740, 280, "#f4f7fb", "#7b8794")
	d.text(26, 36, "bold", "the root scope")
	d.text(26, 66, "normal", "as old as the program:")
	for i, s := range []string{"weights", "their gradients", "optimizer state"} {
		d.code(26, 96+24*i, s)
	}
	for i, x := range []int{250, 500} {
		d.box(x, 50, 220, 210, "#e3f2e6", "#3f9142")
		d.text(x+14, 74, "bold", fmt.Sprintf("the scope of step %d", i+1))
		for j, s := range []string{"batch", "activations", "loss"} {
			d.code(x+14, 104+24*j, s)
		}
		d.text(x+14, 204, "normal", "modes: device, NoGrad,")
		d.text(x+14, 222, "normal", "Autocast, stream, seed")
		d.text(x+14, 248, "bold", "freed at the end")
	}
	d.arrow(150, 92, 256, 124, "#2f6db5")
	d.text(152, 180, "normal", "Backward")
	fmt.Fprintf(d, "<path d=\"M260 152C215 160 195 150 166 124\" fill=\"none\" stroke=\"#b5532f\" stroke-width=\"2\"/>\n")
	fmt.Fprintf(d, "<path d=\"M162 118l10 4l-9 7z\" fill=\"#b5532f\"/>\n")
	return d.done()
}

// The pictures equal the results of the functions that draw them. With -args -write the test writes
// the pictures to files.
func TestPictures(t *testing.T) {
	for name, of := range map[string]func() string{"scopes": scopes, "floors": floors, "matmul": matmulPath, "kernel": kernelPath, "backward": backwardPath} {
		want := of()
		name = "pictures/" + name + ".svg"
		if *write {
			if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what draws it; go test ./docs -args -write", name)
		}
	}
}
