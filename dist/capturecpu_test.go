package dist

import (
	"slices"
	"testing"
)

// TestCapturedStepOnCPU captures a step of several ranks of the CPU. It must be one list of work,
// and a replay must compute the same bits as an eager step.
func TestCapturedStepOnCPU(t *testing.T) {
	l := Devices("cpu:0", "cpu:1")
	for _, how := range waysToTrain {
		t.Run(how.name, func(t *testing.T) {
			want := eager(t, l, how)
			run(t, l, func(g *Group) {
				p := newTrainee(g, how)
				for step := range warm {
					p.feed(step)
					g.Do(p.step)
				}
				x, err := g.Capture(p.step)
				if err != nil {
					t.Error(err)
					return
				}
				for step := warm; step < warm+replays; step++ {
					p.feed(step)
					if err := x.Replay(); err != nil {
						t.Error(err)
						return
					}
					if got := p.numbers(); !slices.Equal(got, want[g.Rank()][step]) {
						t.Errorf("rank %d, step %d:\n%v\nwant\n%v", g.Rank(), step, got[:8], want[g.Rank()][step][:8])
						return
					}
				}
			}, Seed(3))
		})
	}
}
