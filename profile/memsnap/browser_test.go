package memsnap_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/profile/memsnap"
)

// exercise is a script that the test appends to a page. It operates the page as a user would, and
// records the results.
const exercise = `<script>
(function () {
  const said = {}, q = s => document.querySelectorAll(s);
  said.areas = q("svg path.area").length;
  said.empty = [...q("svg path")].filter(p => !p.getAttribute("d") || /NaN|undefined|Infinity/.test(p.getAttribute("d"))).length;
  said.labels = [...q("svg text")].filter(t => /NaN|undefined/.test(t.textContent)).length;
  said.rows = q("tr.owner").length;
  said.segments = q(".segment").length;
  said.events = q("tr.event").length;
  q("tr.owner.open")[0].click();
  said.stack = q("pre")[0].textContent;
  q("tr.owner.open")[0].click();
  said.closed = q("pre").length;
  for (const pick of q(".bar select")) for (const o of pick.options) { pick.value = o.value; pick.dispatchEvent(new Event("change")); }
  said.legend = q(".legend span").length;
  const svg = q("svg")[0], box = svg.getBoundingClientRect();
  svg.dispatchEvent(new MouseEvent("mousemove", { clientX: box.left + box.width / 2, clientY: box.top + 20 }));
  said.tip = document.getElementById("tip").textContent;
  const bar = q("canvas")[0], edge = bar.getBoundingClientRect();
  const seen = bar.getContext("2d").getImageData(0, 0, bar.width, 22).data;
  let drawn = 0;
  for (let i = 3; i < seen.length; i += 4) if (seen[i]) drawn++;
  said.drawn = drawn;
  bar.dispatchEvent(new MouseEvent("mousemove", { clientX: edge.left + 2, clientY: edge.top + 2 }));
  said.bartip = document.getElementById("tip").textContent;
  q("button")[1].click();
  said.now = q("tr.owner").length;
  const find = q("input")[0];
  find.value = "no such thing"; find.dispatchEvent(new Event("input"));
  said.none = q("tr.event").length;
  for (const k in said) document.body.setAttribute("data-said-" + k, said[k]);
})();
</script></body>`

// TestBrowser renders a page in the browser whose path is in FLAMBEAU_CHROMIUM. No script may fail.
// .ci/run browser sets the variable. Without it, TestPageIsSelfContained and the tests of the data
// still run.
func TestBrowser(t *testing.T) {
	chromium := os.Getenv("FLAMBEAU_CHROMIUM")
	if chromium == "" {
		t.Log("no browser: FLAMBEAU_CHROMIUM is not set")
		return
	}
	dir := t.TempDir()
	s := trained(t, 6)
	plain := filepath.Join(dir, "plain.html")
	if err := memsnap.Write(plain, s); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(plain)
	if err != nil {
		t.Fatal(err)
	}
	page = bytes.Replace(page, []byte("</body>"), []byte(exercise), 1)
	path := filepath.Join(dir, "exercised.html")
	if err := os.WriteFile(path, page, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir="+filepath.Join(dir, "profile"),
		"--window-size=1280,2000", "--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom", "file://"+path)
	var out, logged bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &logged
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", chromium, err, logged.String())
	}
	for line := range strings.Lines(logged.String()) {
		if strings.Contains(line, "CONSOLE") {
			t.Errorf("the page said: %s", line)
		}
	}
	body := regexp.MustCompile(`(?s)<body[^>]*>`).FindString(out.String())
	said := func(name string) string {
		m := regexp.MustCompile(`(?s)data-said-` + name + `="([^"]*)"`).FindStringSubmatch(body)
		if m == nil {
			t.Errorf("nothing is said of %s", name)
			return ""
		}
		return m[1]
	}
	if !strings.Contains(body, `data-ready="1"`) || strings.Contains(body, "data-errors") {
		t.Fatalf("the page is not ready: %.2000s\n%s", body, logged.String())
	}
	for _, c := range []struct {
		name      string
		low, high int
	}{{"areas", 5, 7}, {"empty", 0, 0}, {"labels", 0, 0}, {"rows", 10, 100}, {"segments", 1, 20}, {"events", 200, 200}, {"closed", 0, 0}, {"legend", 3, 12},
		{"drawn", 500, 1 << 30}, {"now", 5, 100}, {"none", 0, 0}} {
		if n, err := strconv.Atoi(said(c.name)); err != nil || n < c.low || n > c.high {
			t.Errorf("%s is %d, want %d to %d", c.name, n, c.low, c.high)
		}
	}
	for name, want := range map[string]string{"stack": "memsnap/real_test.go:", "tip": "allocated", "bartip": "asked for"} {
		if text := said(name); !strings.Contains(text, want) || strings.Contains(text, "undefined") || strings.Contains(text, "NaN") {
			t.Errorf("%s reads %q", name, text)
		}
	}
	// one in the title and one in the heading
	if n := strings.Count(out.String(), fmt.Sprintf("Memory of %s", s.Device)); n != 2 {
		t.Errorf("the title is there %d times", n)
	}
}
