package main

import (
	"slices"
	"testing"
)

// strokes has hand-drawn digits. Each digit is a list of points on a page of 256×256 pixels.
var strokes = [10][][2]float64{
	{{128, 60}, {100, 75}, {85, 128}, {100, 180}, {128, 195}, {156, 180}, {171, 128}, {156, 75}, {128, 60}},
	{{105, 85}, {135, 60}, {135, 200}},
	{{90, 90}, {105, 65}, {140, 60}, {160, 85}, {150, 120}, {90, 195}, {170, 195}},
	{{90, 65}, {145, 60}, {165, 85}, {150, 118}, {115, 125}, {150, 132}, {168, 165}, {145, 195}, {90, 192}},
	{{130, 55}, {85, 140}, {165, 140}, {145, 105}, {138, 200}},
	{{165, 60}, {105, 60}, {95, 115}, {140, 112}, {165, 150}, {145, 190}, {90, 192}},
	{{135, 55}, {105, 95}, {92, 150}, {110, 192}, {150, 188}, {160, 155}, {135, 135}, {98, 150}},
	{{88, 62}, {168, 62}, {140, 120}, {115, 200}},
	{{128, 125}, {100, 95}, {115, 62}, {145, 62}, {158, 92}, {128, 125}, {98, 160}, {112, 194}, {146, 194}, {160, 162}, {128, 125}},
	{{160, 95}, {140, 62}, {105, 68}, {98, 105}, {125, 125}, {158, 100}, {160, 95}, {158, 150}, {140, 198}},
}

// ink returns a page with a line of the given points, drawn by a pen of width 20.
func ink(line [][2]float64) []byte {
	page := make([]byte, 256*256)
	for i := range len(line) - 1 {
		a, b := line[i], line[i+1]
		for t := 0.0; t <= 1; t += 1. / 64 {
			cx, cy := a[0]+t*(b[0]-a[0]), a[1]+t*(b[1]-a[1])
			for y := int(cy) - 10; y <= int(cy)+10; y++ {
				for x := int(cx) - 10; x <= int(cx)+10; x++ {
					if dx, dy := float64(x)-cx, float64(y)-cy; dx*dx+dy*dy < 100 {
						page[y*256+x] = 255
					}
				}
			}
		}
	}
	return page
}

// The training of the page works, and the trained classifier recognises hand-drawn digits.
func TestClassifier(t *testing.T) {
	c, err := newClassifier()
	if err != nil {
		t.Fatal(err)
	}
	var losses []float64
	for range 10 {
		if err := c.epoch(func(loss float64) { losses = append(losses, loss) }); err != nil {
			t.Fatal(err)
		}
	}
	share, err := c.accuracy()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d steps, loss %.3f to %.3f, accuracy %.3f", len(losses), losses[0], losses[len(losses)-1], share)
	if last := losses[len(losses)-20:]; slices.Max(last) > losses[0]/2 || share < 0.93 {
		t.Errorf("losses from %v to %v, accuracy %v", losses[0], last, share)
	}
	right := 0
	for digit, line := range strokes {
		p := c.classify(shrink(ink(line), 256))
		found := slices.Index(p, slices.Max(p))
		t.Logf("%d: %d with %.3f", digit, found, slices.Max(p))
		if found == digit {
			right++
		}
	}
	if right < 9 {
		t.Errorf("%d of 10 drawn digits are found", right)
	}
}

func TestShrink(t *testing.T) {
	if p := shrink(make([]byte, 256*256), 256); p != nil {
		t.Errorf("without ink: %v", p)
	}
	// A square block of ink fills the bitmap. A block of half the width fills the middle.
	page := make([]byte, 256*256)
	for y := 100; y < 132; y++ {
		for x := 40; x < 56; x++ {
			page[y*256+x] = 200
		}
	}
	p := shrink(page, 256)
	for i, v := range p {
		if inside := i%8 >= 2 && i%8 < 6; inside && v != 1 || !inside && v != 0 {
			t.Errorf("cell %d, %d is %v", i/8, i%8, v)
		}
	}
}
