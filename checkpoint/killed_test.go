package checkpoint

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/tensor"
)

// A process that is killed during a save leaves a temporary file, which the next Open removes. The
// temporary file of a running process stays.
func TestLeftoversOfKilledSaves(t *testing.T) {
	if dir := os.Getenv("FLAMBEAU_TEST_HANG"); dir != "" {
		s, err := Open(Config{Dir: dir})
		if err != nil {
			panic(err)
		}
		big := map[string]any{"w": tensor.Zeros(16 << 20)}
		for step := 1; ; step++ {
			if err := s.Save(big, Info{Step: step}); err != nil {
				panic(err)
			}
		}
	}
	dir := t.TempDir()
	c := exec.Command(os.Args[0], "-test.run", "^TestLeftoversOfKilledSaves$")
	c.Env = append(os.Environ(), "FLAMBEAU_TEST_HANG="+dir)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	temporary := func() []string {
		list, err := filepath.Glob(filepath.Join(dir, ".*.tmp-*"))
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	for i := 0; len(temporary()) == 0; i++ {
		if i > 3000 {
			t.Fatal("nothing is written")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	left := len(temporary())
	s, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if now := temporary(); len(now) != 0 || len(s.Removed()) != left {
		t.Errorf("%d of %d are left, %v", len(now), left, s.Removed())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if all, _ := filepath.Glob(filepath.Join(dir, ".*")); len(all) != 0 {
		t.Errorf("%v are left", all)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"m":{"a":1,"b":{"f":"0.5"},"c":{"l":[{"t":"w"},null,true,"x"]},"d":{"n":{"1":2}}}}`, `{"m":[]}`, `{"x":1}`, `[`} {
		f.Add(s)
	}
	w := tensor.Ones(1)
	f.Fuzz(func(t *testing.T, text string) {
		tree, err := decode(text, map[string]*tensor.Tensor{"w": w})
		if err != nil {
			return
		}
		e := encoder{names: map[*tensor.Tensor]string{}}
		if _, err := e.encode("", tree, 0); err != nil && tree[""] == nil {
			t.Fatalf("%v cannot be written: %v", tree, err)
		}
	})
}
