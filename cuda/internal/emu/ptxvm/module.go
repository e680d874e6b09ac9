package ptxvm

import (
	"strings"
	"sync"
)

// Module is a parsed PTX module. It is immutable, except for the instances of its .global
// variables, and safe for concurrent use.
type Module struct {
	target       int
	arch         string // the directive .target as written, such as "sm_90a"
	major, minor int
	entries      []*Entry
	byName       map[string]*Entry
	src          []string // lines of the PTX text
	scope        *scope   // module-scope variables
	constImage   []byte
	globals      []*variable
	functions    []*function
	funcByName   map[string]*function
	copied       int // number of statements and registers of functions that were copied into kernels

	mu        sync.Mutex
	instances map[*Memory]map[*variable]uint64
}

// Param is one kernel parameter. Size and Offset are in bytes. Offset is the position among the
// packed parameters.
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
	ParamBytes   int    // size of the packed parameters in bytes
	MaxThreads   [3]int // values of .maxntid or .reqntid; zero if absent
	ReqThreads   bool   // whether blocks must have exactly MaxThreads threads
	MinCTAs      int    // value of .minnctapersm
	StaticShared int    // bytes of static shared memory
	Local        int    // bytes of local memory of each thread

	mod       *Module
	code      []inst
	consts    []constSlot
	nreg      int
	npred     int
	specials  []specialUse
	dynOffset int // offset of dynamic shared memory from sharedOrigin
	usesAsync bool
	// whether the kernel writes global memory, or may write it through a generic address
	writesGlobal bool
	bodies       map[*function]*body // the entry's copies of the functions that it may call
	// slot of the register with the address of a thread's frame in local memory; 0 if the entry
	// calls no function
	base       int32
	pool       sync.Pool // values of type *cta, which later launches reuse
	names      map[regKey]string
	sharedVars []variable // shared variables with offsets, for messages
	noted      map[sharedKey]bool
}

// Target returns the compute capability of the directive .target times ten, such as 80 for sm_80.
func (m *Module) Target() int { return m.target }

// Arch returns the directive .target as written, such as "sm_90a".
func (m *Module) Arch() string { return m.arch }

// Version returns the PTX version of the directive .version.
func (m *Module) Version() (major, minor int) { return m.major, m.minor }

// Entries returns the names of the kernels in the order of the text.
func (m *Module) Entries() []string {
	names := make([]string, len(m.entries))
	for i, e := range m.entries {
		names[i] = e.Name
	}
	return names
}

// Entry returns the kernel of that name, or nil if there is none.
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
