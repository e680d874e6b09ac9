package hostmem

import (
	"bufio"
	"bytes"
	"os"
	"path"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// adviseHuge asks for transparent huge pages. A kernel without them, or with the setting "never",
// refuses. The memory is usable in this case too, but first accesses to its pages are slower.
func adviseHuge(base unsafe.Pointer, length uintptr) bool {
	if unix.Madvise(unsafe.Slice((*byte)(base), length), unix.MADV_HUGEPAGE) != nil {
		return false
	}
	mode, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	return err == nil && !bytes.Contains(mode, []byte("[never]"))
}

func capacity() (free, total uint64) {
	if f, err := os.Open("/proc/meminfo"); err == nil {
		free, total = meminfo(bufio.NewScanner(f))
		f.Close()
	}
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return free, total
	}
	return groups(free, total, string(self), func(name string) (uint64, bool) {
		text, err := os.ReadFile(path.Join("/sys/fs/cgroup", name))
		if err != nil {
			return 0, false
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		return n, err == nil // "max" is not a number: it means no limit
	})
}

// meminfo reads MemAvailable and MemTotal, in KiB, from a text in the format of /proc/meminfo
// (proc_meminfo(5)).
func meminfo(s *bufio.Scanner) (free, total uint64) {
	for s.Scan() {
		f := strings.Fields(s.Text())
		if len(f) < 2 {
			continue
		}
		n, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			continue
		}
		switch f[0] {
		case "MemAvailable:":
			free = n << 10
		case "MemTotal:":
			total = n << 10
		}
	}
	return free, total
}

// groups lowers free and total to the limits of the process's control groups. In version 2 of
// control groups, the file memory.max at each level up to the root has a limit. In version 1 the
// limit is in memory.limit_in_bytes. The argument cgroups is the text of /proc/self/cgroup: lines
// "id:controllers:path". Version 2 has one line, with id 0 and no controllers (cgroups(7)). The
// function read returns the number in a file, given its path below the mount point.
func groups(free, total uint64, cgroups string, read func(name string) (uint64, bool)) (uint64, uint64) {
	lower := func(limit, usage string) {
		most, ok := read(limit)
		if !ok {
			return
		}
		total = min(total, most)
		if used, ok := read(usage); ok {
			free = min(free, most-min(most, used))
		}
		free = min(free, total)
	}
	for _, line := range strings.Split(cgroups, "\n") {
		part := strings.SplitN(line, ":", 3)
		if len(part) != 3 {
			continue
		}
		var root, limit, usage string
		switch {
		case part[0] == "0" && part[1] == "":
			root, limit, usage = "/", "memory.max", "memory.current"
		case strings.Contains(","+part[1]+",", ",memory,"):
			root, limit, usage = "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
		default:
			continue
		}
		for dir := path.Join("/", part[2]); ; dir = path.Dir(dir) {
			lower(path.Join(root, dir, limit), path.Join(root, dir, usage))
			if dir == "/" {
				break
			}
		}
	}
	return free, total
}
