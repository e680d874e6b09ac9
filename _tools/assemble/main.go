// Command assemble runs NVIDIA's assembler on every kernel in a folder of PTX files, for each of
// the architectures. It fails if a kernel is refused, spills registers, or causes a warning about
// serialised matrix instructions.
//
//	go run ./assemble [-ptxas PATH] [-cache DIR] [-arch sm_80,sm_90,sm_120] FOLDER
//
// Many kernels of one PTX version and target are combined in a module, because starting the
// assembler takes longer than assembling a kernel. The largest modules come first, so that all
// cores stay busy to the end. If several kernels differ only in their name, only one of them is
// assembled. A combination of text, architecture and assembler that passed before is skipped. The
// cache folder has the hashes of these combinations.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// A kernel is the kernel in one PTX file.
type kernel struct {
	file, header, body, entry string
	target                    int
	hash                      [32]byte
}

var (
	versionLine = regexp.MustCompile(`(?m)^\.version\s+\S+\s*$`)
	targetLine  = regexp.MustCompile(`(?m)^\.target\s+sm_(\d+)(\w*)\s*$`)
	sizeLine    = regexp.MustCompile(`(?m)^\.address_size\s+64\s*$`)
	entryName   = regexp.MustCompile(`\.entry\s+([\w$]+)`)
	moduleName  = regexp.MustCompile(`(?m)^\s*(?:\.\w+\s+)*\.(?:shared|global|const)\s+[^;]*?([\w$]+)\s*(?:\[|;|=)`)
	spill       = regexp.MustCompile(`[1-9]\d* bytes spill`)
	serialised  = regexp.MustCompile(`C75\d\d`)
)

func main() {
	log.SetFlags(0)
	ptxas := flag.String("ptxas", os.Getenv("FLAMBEAU_PTXAS"), "the assembler")
	cache := flag.String("cache", "", "folder that remembers what passed")
	arch := flag.String("arch", "sm_80,sm_90,sm_120", "architectures")
	batch := flag.Int("batch", 64, "kernels a module")
	flag.Parse()
	if *ptxas == "" || flag.NArg() != 1 {
		log.Fatal("usage: assemble -ptxas PATH [-cache DIR] FOLDER")
	}
	version, err := exec.Command(*ptxas, "--version").Output()
	if err != nil {
		log.Fatalf("%s: %v", *ptxas, err)
	}
	kernels, err := read(flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	if len(kernels) == 0 {
		log.Fatalf("%s: no kernels", flag.Arg(0))
	}
	start := time.Now()
	a := &assembler{ptxas: *ptxas, version: version, cache: *cache}
	different := distinct(kernels)
	var jobs []job
	for _, sm := range strings.Split(*arch, ",") {
		for _, group := range groups(a.unseen(different, sm), *batch) {
			j := job{group, sm, 0}
			for _, k := range group {
				j.size += len(k.body)
			}
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, func(x, y job) int { return y.size - x.size })
	queue := make(chan job)
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			for j := range queue {
				a.group(j.kernels, j.sm)
			}
		})
	}
	for _, j := range jobs {
		queue <- j
	}
	close(queue)
	wg.Wait()
	fmt.Printf("%d kernels, %d of them different, for %s: %d assembled, %d known to pass, %d failed, %.1f s (%.1f s of processors)\n", len(kernels), len(different), *arch,
		a.done, a.known, a.failed, time.Since(start).Seconds(), a.busy.Seconds())
	if a.failed > 0 {
		os.Exit(1)
	}
}

// A job is a module that is assembled for one architecture.
type job struct {
	kernels []kernel
	sm      string
	size    int // length of the text in bytes
}

// distinct returns the kernels, except those that differ from an earlier kernel only in the name.
func distinct(kernels []kernel) []kernel {
	seen := map[[32]byte]bool{}
	var out []kernel
	for _, k := range kernels {
		if !seen[k.hash] {
			seen[k.hash] = true
			out = append(out, k)
		}
	}
	return out
}

// read reads the kernels in a folder of PTX files.
func read(folder string) ([]kernel, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.ptx"))
	if err != nil {
		return nil, err
	}
	var out []kernel
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		k := kernel{file: f, hash: sha256.Sum256(entryName.ReplaceAll(text, []byte(".entry kernel")))}
		t := targetLine.FindSubmatch(text)
		e := entryName.FindAllSubmatch(text, -1)
		if t == nil || len(e) == 0 {
			return nil, fmt.Errorf("%s: no .target or no .entry", f)
		}
		fmt.Sscan(string(t[1]), &k.target)
		k.entry = string(e[0][1])
		k.header = strings.TrimSpace(string(versionLine.Find(text))) + "\n" + strings.TrimSpace(string(targetLine.Find(text))) + "\n.address_size 64\n"
		body := string(text)
		for _, re := range []*regexp.Regexp{versionLine, targetLine, sizeLine} {
			body = re.ReplaceAllString(body, "")
		}
		k.body = body
		out = append(out, k)
	}
	return out, nil
}

// groups combines kernels with the same header into modules. Names must be unique in a module.
func groups(kernels []kernel, batch int) [][]kernel {
	byHeader := map[string][]kernel{}
	for _, k := range kernels {
		h := k.header
		if moduleName.MatchString(strings.SplitN(k.body, ".entry", 2)[0]) {
			// Kernels may use the same names for module variables, so this kernel is assembled
			// alone.
			h += k.file
		}
		byHeader[h] = append(byHeader[h], k)
	}
	var out [][]kernel
	for _, list := range byHeader {
		var open [][]kernel
		for _, k := range list {
			at := slices.IndexFunc(open, func(g []kernel) bool {
				return len(g) < batch && !slices.ContainsFunc(g, func(o kernel) bool { return o.entry == k.entry })
			})
			if at < 0 {
				open = append(open, nil)
				at = len(open) - 1
			}
			open[at] = append(open[at], k)
		}
		out = append(out, open...)
	}
	return out
}

type assembler struct {
	ptxas   string
	version []byte
	cache   string

	mu                  sync.Mutex
	done, known, failed int
	busy                time.Duration // CPU time that the assembler has used
}

func (a *assembler) mark(k kernel, sm string) string {
	h := sha256.New()
	h.Write(k.hash[:])
	h.Write([]byte(sm))
	h.Write(a.version)
	return filepath.Join(a.cache, hex.EncodeToString(h.Sum(nil)[:16]))
}

// unseen returns the kernels, except those that passed before and those that need a newer
// architecture than sm.
func (a *assembler) unseen(kernels []kernel, sm string) []kernel {
	var n int
	fmt.Sscanf(sm, "sm_%d", &n)
	var out []kernel
	for _, k := range kernels {
		if k.target > n || strings.Contains(k.header, fmt.Sprintf("sm_%da", k.target)) && k.target != n {
			continue
		}
		if a.cache != "" {
			if _, err := os.Stat(a.mark(k, sm)); err == nil {
				a.known++
				continue
			}
		}
		out = append(out, k)
	}
	return out
}

// group assembles a module. If that fails, it assembles each kernel separately, to find those that
// fail.
func (a *assembler) group(list []kernel, sm string) {
	if text, ok := a.run(list, sm); !ok {
		if len(list) > 1 {
			for _, k := range list {
				a.group([]kernel{k}, sm)
			}
			return
		}
		a.mu.Lock()
		a.failed++
		fmt.Printf("%s (%s) for %s:\n%s\n", list[0].file, list[0].entry, sm, text)
		a.mu.Unlock()
		return
	}
	a.mu.Lock()
	a.done += len(list)
	a.mu.Unlock()
	if a.cache != "" {
		if err := os.MkdirAll(a.cache, 0o755); err != nil {
			log.Fatal(err)
		}
		for _, k := range list {
			if err := os.WriteFile(a.mark(k, sm), nil, 0o644); err != nil {
				log.Fatal(err)
			}
		}
	}
}

func (a *assembler) run(list []kernel, sm string) (string, bool) {
	f, err := os.CreateTemp("", "assemble-*.ptx")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(f.Name())
	f.WriteString(list[0].header)
	for _, k := range list {
		f.WriteString(k.body)
	}
	if err := f.Close(); err != nil {
		log.Fatal(err)
	}
	arch := sm
	// Some features exist only in the architecture with the suffix "a".
	if strings.Contains(list[0].header, sm+"a") {
		arch += "a"
	}
	cmd := exec.Command(a.ptxas, "-v", "-arch", arch, "-o", os.DevNull, f.Name())
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil {
		a.mu.Lock()
		a.busy += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		a.mu.Unlock()
	}
	if err != nil {
		return string(out), false
	}
	if spill.Match(out) || serialised.Match(out) {
		return string(out), false
	}
	return "", true
}
