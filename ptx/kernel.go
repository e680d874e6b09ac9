package ptx

// Kernel is a finished kernel.
type Kernel struct {
	Name    string  // entry point
	Text    string  // PTX
	Version int     // PTX version times ten: 70 is 7.0
	Target  int     // compute capability times ten: 80 is sm_80
	Exact   bool    // it runs on no other capability: sm_90a
	Params  []Param // in declaration order
	// ParamSize is the size in bytes of the packed parameter block, in which
	// each parameter lies at its Offset.
	ParamSize    int
	StaticShared int    // bytes of static shared memory
	LocalBytes   int    // bytes of declared local arrays per thread
	MaxThreads   [3]int // as given to MaxThreads; zeros if it was not called
}

// Build checks the kernel, runs the passes and prints it. It reports every
// misuse since New as one *Error. A builder is built once.
func (b *Builder) Build() (*Kernel, error) { return b.build(true) }

// BuildPlain is Build without the optimizing passes: the instructions in the
// order in which they were asked for, to tell a wrong kernel from a wrong pass.
func (b *Builder) BuildPlain() (*Kernel, error) { return b.build(false) }

func (b *Builder) build(optimize bool) (*Kernel, error) {
	if b.frozen {
		b.fail("Build is called twice")
	}
	if len(b.params) == 0 {
		b.fail("the kernel has no parameters, so it can have no effect")
	}
	if b.cur != b.root {
		b.fail("Build is called inside a control-flow body")
	}
	if len(b.problems) > 0 {
		return nil, &Error{Kernel: b.name, Problems: b.problems}
	}
	b.frozen = true
	for _, p := range passes {
		if optimize || !p.optional {
			p.run(b)
		}
	}
	k := &Kernel{Name: b.name, Text: b.print(), Version: b.version, Target: b.arch.SM(), Exact: b.arch.Exact(), Params: b.params,
		StaticShared: b.shared, LocalBytes: b.local, MaxThreads: b.threads}
	for _, p := range b.params {
		k.ParamSize = p.Offset + p.Size
	}
	return k, nil
}
