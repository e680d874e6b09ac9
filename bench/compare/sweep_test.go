package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The report has, for each case, the fastest variant with correct results. It says how far this
// variant and the planner's choice are from the limit of judgeSweep.
func TestJudgeSweep(t *testing.T) {
	work := t.TempDir()
	for name, text := range map[string]string{
		"sweep.json": `{"case":"copy","unit":"GB/s","variants":[{"name":"chosen","rate":4000}]}` + "\n" +
			`{"case":"add_256M_f32","unit":"GB/s","variants":[{"name":"chosen","rate":3000},{"name":"v2","rate":3600},{"name":"v4","rate":3900,"error":"wrong"}]}` + "\n" +
			`{"case":"matmul_4096_f32","unit":"GFLOP/s","variants":[{"name":"chosen","rate":30000},{"name":"64²","rate":20000}]}` + "\n" +
			`{"case":"sum","unit":"GB/s","variants":[{"name":"chosen","error":"refused"},{"name":"u2","rate":3000}]}` + "\n" + `{"case":"cut`,
		"torch.json": `{"device":"cuda:0","case":"matmul_4096_f32","rate":40000,"median_seconds":1}`,
	} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := []string{}
	for _, v := range judge("sweep", work) {
		got = append(got, v.What+"|"+v.Bound+"|"+v.Measured+"|"+v.Word)
	}
	want := "copy|4000 1.00||-\nadd_256M_f32|3000 0.75|v2: 3600, +20.0 %, 0.90 of copy|-\nmatmul_4096_f32|30000 0.75||-\nsum|failed|u2: 3000, 0.75 of copy|-"
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("got\n%s\nwant\n%s", s, want)
	}
	if list := judge("sweep", t.TempDir()); len(list) != 1 || list[0].Word != fails {
		t.Errorf("without measurements: %v", list)
	}
}
