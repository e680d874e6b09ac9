package ptxvm

import (
	"strconv"
	"strings"
)

type variable struct {
	name   string
	space  space
	typ    Type
	size   int
	align  int
	offset int // offset in the variable's state space; not used for .global
	extern bool
	init   []byte // initial values of .global and .const
	// For .shared, offset holds only for the entry placed. In another entry it may differ.
	placed *Entry
	// For .param of a function or of a call, framed says that offset is relative to the frame.
	framed bool
	// For .global and .const, links are the initial values that are addresses.
	links []link
}

// scope maps names to declarations. Names that it does not contain are looked up in the enclosing
// scope, up.
type scope struct {
	up     *scope
	regs   map[string]*register
	ranges map[string]*regRange // ranges of registers by prefix
	// for each prefix, the lowest number of a register that is declared alone: 3 for %r if %r3 and
	// %r5 are declared
	numbered map[string]uint64
	vars     map[string]*variable
	labels   map[string]int      // index of the instruction at each label
	tables   map[string][]string // for each .branchtargets directive, its labels
}

type regRange struct {
	n   uint64
	typ Type
}

// register is a declared register. It gets its slot when it is first used.
type register struct {
	typ  Type
	slot int32 // index into the register file or the predicate file
}

func newScope(up *scope) *scope {
	return &scope{up: up, regs: map[string]*register{}, vars: map[string]*variable{}, labels: map[string]int{}, tables: map[string][]string{}}
}

// numbered splits the name of a register that may belong to a range. All digits at its end are the
// number.
func numbered(name string) (prefix string, n uint64, ok bool) {
	prefix = strings.TrimRight(name, "0123456789")
	num := name[len(prefix):]
	if num == "" || num != "0" && num[0] == '0' {
		return "", 0, false
	}
	n, err := strconv.ParseUint(num, 10, 32)
	return prefix, n, err == nil
}

// span returns the range of registers to which the name belongs.
func (s *scope) span(name string) *regRange {
	if prefix, n, ok := numbered(name); ok {
		if g := s.ranges[prefix]; g != nil && n < g.n {
			return g
		}
	}
	return nil
}

func (s *scope) register(name string) *register {
	for ; s != nil; s = s.up {
		if r := s.regs[name]; r != nil {
			return r
		}
		if g := s.span(name); g != nil {
			r := &register{typ: g.typ, slot: -1}
			s.regs[name] = r
			return r
		}
	}
	return nil
}

func (s *scope) variable(name string) *variable {
	for ; s != nil; s = s.up {
		if v := s.vars[name]; v != nil {
			return v
		}
	}
	return nil
}

func (s *scope) label(name string) (int, bool) {
	for ; s != nil; s = s.up {
		if pc, ok := s.labels[name]; ok {
			return pc, true
		}
	}
	return 0, false
}
