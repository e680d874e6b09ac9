//go:build !js && !wasip1

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
)

// exercise is a script that uses the page as a visitor would, and reports the results.
const exercise = `<script>
(async () => {
  const said = { found: [], shares };
  const until = async (what, holds) => {
    for (const end = Date.now() + 120000; !holds();) {
      if (Date.now() > end) throw new Error("never " + what);
      await new Promise((f) => setTimeout(f, 20));
    }
  };
  const pick = (file) => {
    const files = new DataTransfer();
    files.items.add(file);
    at("pick").files = files.files;
    at("pick").dispatchEvent(new Event("change"));
  };
  try {
    await until("ready", () => !at("train").disabled);
    at("train").click();
    await until("trained", () => shares.length >= 10);
    at("train").click();
    const then = shares.length;
    said.status = at("status").textContent;
    said.chart = document.querySelector("path.loss").getAttribute("d");
    for (const line of STROKES) {
      at("clear").click();
      const box = at("draw").getBoundingClientRect();
      line.forEach(([x, y], i) => at("draw").dispatchEvent(new PointerEvent(i ? "pointermove" : "pointerdown",
        { clientX: box.left + 1 + x, clientY: box.top + 1 + y, buttons: 1, bubbles: true })));
      at("draw").dispatchEvent(new PointerEvent("pointerup", { bubbles: true }));
      await until("classified", () => document.querySelector("#odds .best"));
      said.found.push(parseInt(document.querySelector("#odds .best").textContent[0]));
    }
    said.further = shares.length - then;
    pick(new File(["no such format"], "broken.safetensors"));
    await until("refused", () => at("error").textContent);
    said.refused = at("error").textContent;
    pick(new File([await (await fetch("/model.safetensors")).blob()], "model.safetensors"));
    await until("listed", () => at("tensors").children.length);
    said.rows = [...at("tensors").children].map((r) => [...r.children].map((c) => c.textContent).join("|"));
    said.notes = at("notes").textContent;
    [...at("tensors").children].find((r) => r.firstChild.textContent === "weight").click();
    await until("shown", () => !at("values").hidden);
    said.values = at("values").textContent;
    said.error = at("error").textContent;
  } catch (err) {
    said.failed = String(err) + " " + at("error").textContent;
  }
  fetch("/said", { method: "POST", body: JSON.stringify(said) });
})();
</script>`

// The page works in the browser that FLAMBEAU_CHROMIUM names. The command ".ci/run browser" sets
// this variable. Without it, TestClassifier runs the page's training, and TestProgram checks the
// contents of the page's program.
func TestBrowser(t *testing.T) {
	chromium := os.Getenv("FLAMBEAU_CHROMIUM")
	if chromium == "" {
		t.Log("no browser: FLAMBEAU_CHROMIUM is not set")
		return
	}
	dir := t.TempDir()
	if err := build(dir); err != nil {
		t.Fatal(err)
	}
	if n := packed(t, filepath.Join(dir, "browser.wasm")); n > 6e6 {
		t.Errorf("the program has %d bytes compressed, at most 6 MB", n)
	}
	weight := tensor.From([][]float32{{1, -2}, {0.5, 4}})
	err := safetensors.Save(filepath.Join(dir, "model.safetensors"),
		map[string]*tensor.Tensor{"bias": tensor.From([]int64{3}), "weight": weight}, map[string]string{"made": "by a test"})
	if err != nil {
		t.Fatal(err)
	}
	lines, err := json.Marshal(strokes)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	page = append(page, strings.Replace(exercise, "STROKES", string(lines), 1)...)
	said := make(chan []byte, 1)
	served := http.NewServeMux()
	served.Handle("GET /", http.FileServer(http.Dir(dir)))
	served.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { w.Write(page) })
	served.HandleFunc("POST /said", func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body) // an incomplete answer is not valid JSON
		said <- text
	})
	server := httptest.NewServer(served)
	defer server.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0",
		"--user-data-dir="+filepath.Join(dir, "profile"), "--window-size=1280,2000", "--enable-logging=stderr", server.URL)
	// After an interrupt, the browser also ends its child processes.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var logged bytes.Buffer
	cmd.Stderr = &logged
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var text []byte
	select {
	case text = <-said:
		cancel()
		<-ended
	case err := <-ended:
		t.Fatalf("%s: %v\n%s", chromium, err, logged.String())
	}
	for line := range strings.Lines(logged.String()) {
		if strings.Contains(line, "CONSOLE") {
			t.Errorf("the page said: %s", line)
		}
	}
	var got struct {
		Failed, Status, Chart, Refused, Notes, Values, Error string
		Shares                                               [][2]float64
		Found                                                []int
		Further                                              int
		Rows                                                 []string
	}
	if err := json.Unmarshal(text, &got); err != nil || got.Failed != "" {
		t.Fatalf("%v\n%s", err, text)
	}
	t.Logf("%s; drawn digits are found as %v", got.Status, got.Found)
	if last := got.Shares[len(got.Shares)-1]; last[1] < 0.93 {
		t.Errorf("after %v steps the accuracy is %v", last[0], last[1])
	}
	if strings.Count(got.Chart, "L") < 400 || strings.Contains(got.Chart, "NaN") {
		t.Errorf("the curve is %q", got.Chart)
	}
	right := 0
	for digit, found := range got.Found {
		if found == digit {
			right++
		}
	}
	if right < 9 || got.Further > 2 {
		t.Errorf("%d of 10 digits are found; %d more epochs after the end", right, got.Further)
	}
	if !strings.Contains(got.Refused, "broken.safetensors") || got.Error != "" {
		t.Errorf("the errors are %q and %q", got.Refused, got.Error)
	}
	if want := []string{"bias|I64|[1]|8", "weight|F32|[2 2]|16"}; !slices.Equal(slices.Sorted(slices.Values(got.Rows)), want) || got.Notes != "made: by a test" {
		t.Errorf("rows %q, notes %q", got.Rows, got.Notes)
	}
	if want := fmt.Sprintf("weight\n%v", weight); got.Values != want {
		t.Errorf("values %q", got.Values)
	}
}

// packed returns the size of a file after compression by gzip.
func packed(t *testing.T, path string) int64 {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return int64(out.Len())
}

// The page's program contains only what the page uses. It contains no GPU driver or emulator, no
// command line, no image decoders, and no network code.
func TestProgram(t *testing.T) {
	list := exec.Command("go", "list", "-deps", ".")
	list.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "flambeau/tensor\n") {
		t.Fatalf("go list says:\n%s", out)
	}
	for _, m := range regexp.MustCompile(`(?m)^(.*flambeau/(cuda|ptx|train|cmd).*|.*kong.*|image.*|net|net/.*|html.*|text/.*)$`).FindAllString(string(out), -1) {
		t.Errorf("%s comes along", m)
	}
}
