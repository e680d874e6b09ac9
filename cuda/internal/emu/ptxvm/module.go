package ptxvm

import (
	"strings"
	"sync"
)

// Module is a parsed PTX module. It is immutable, except for the instances of its .global
// variables, and safe for concurrent use.
type Module struct {
	target       int
	arch         string // .target as written, such as "sm_90a"
	major, minor int
	entries      []*Entry
	byName       map[string]*Entry
	src          []string // lines of the text
	scope        *scope   // module-scope variables
	constImage   []byte
	globals      []*variable
	functions    []*function
	funcByName   map[string]*function
	copied       int // number of instructions in the entries' copies of functions

	mu        sync.Mutex
	instances map[*Memory]map[*variable]uint64
}

// Param is one kernel parameter. Size and Offset are in bytes. Offset is the position in the packed
// parameter block.
type Param struct {
	Name   string
	Type   Type
	Size   int // size of the whole parameter, arrays included
	Align  int
	Offset int
}

// Entry is one kernel.
type Entry struct {
	Name         string
	Params       []Param
	ParamBytes   int    // size of the packed parameter block
	MaxThreads   [3]int // .maxntid or .reqntid, zero where absent
	ReqThreads   bool   // blocks must have exactly MaxThreads
	MinCTAs      int    // .minnctapersm
	StaticShared int    // bytes of static shared memory
	Local        int    // bytes of local memory for each thread

	mod       *Module
	code      []inst
	consts    []constSlot
	nreg      int
	npred     int
	specials  []specialUse
	dynOffset int // offset of dynamic shared memory from sharedOrigin
	usesAsync bool
	// the kernel writes global memory, or may do so through a generic address
	writesGlobal bool
	bodies       map[*function]*body // the entry's copies of the functions that it may call
	// slot with the address of a thread's frame in local memory; 0 if the entry calls no function
	base       int32
	pool       sync.Pool // values of type *cta, for later launches
	names      map[regKey]string
	sharedVars []variable // shared variables with offsets, for messages
	noted      map[sharedKey]bool
}

// Target returns the compute capability of .target, 80 for sm_80.
func (m *Module) Target() int { return m.target }

// Arch returns .target as written, "sm_90a".
func (m *Module) Arch() string { return m.arch }

// Version returns the PTX ISA version of .version.
func (m *Module) Version() (major, minor int) { return m.major, m.minor }

// Entries returns the names of the entries in the order of the text.
func (m *Module) Entries() []string {
	names := make([]string, len(m.entries))
	for i, e := range m.entries {
		names[i] = e.Name
	}
	return names
}

// Entry returns the entry of that name, or nil if there is none.
func (m *Module) Entry(name string) *Entry { return m.byName[name] }

func (m *Module) line(n int) string {
	if n < 1 || n > len(m.src) {
		return ""
	}
	s := strings.TrimSpace(m.src[n-1])
	if i := strings.Index(s, "//"); i > 0 {
		s = strings.TrimSpace(s[:i])
	}
	return s
}
