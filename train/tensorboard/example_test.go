package tensorboard_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/flambeau-go/flambeau/train/tensorboard"
)

// The example writes a loss curve and a text. The command "tensorboard --logdir runs" shows them.
func Example() {
	dir, err := os.MkdirTemp("", "runs")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	w, err := tensorboard.NewWriter(filepath.Join(dir, "first"))
	if err != nil {
		log.Fatal(err)
	}
	w.Text("config", "learning rate **0.1**", 0)
	for step := range 100 {
		w.Scalar("loss/train", 1/float64(step+1), step)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.HasPrefix(filepath.Base(w.Path()), "events.out.tfevents."))
	// Output: true
}
