package ptx

// Kernel is a finished kernel.
type Kernel struct {
	Name    string  // name of the entry point
	Text    string  // the text in PTX
	Version int     // PTX version times ten: 70 is 7.0
	Target  int     // compute capability times ten: 80 is sm_80
	Exact   bool    // the kernel runs only on devices with this capability, as with sm_90a
	Params  []Param // parameters in declaration order
	// ParamSize is the size of the packed parameter block in bytes. Each Param has its Offset in
	// the block.
	ParamSize    int
	StaticShared int    // bytes of static shared memory
	LocalBytes   int    // bytes of declared local arrays per thread
	MaxThreads   [3]int // arguments of MaxThreads; zeros if it was not called
}

// Build checks the kernel, runs the passes and prints the kernel. It returns every misuse since
// New in one *Error. Build can be called only once.
func (b *Builder) Build() (*Kernel, error) { return b.build(true) }

// BuildPlain does the same as Build, without the optimization passes. Instructions keep the order
// of the calls. If a kernel is right with BuildPlain but wrong with Build, a pass is the cause.
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
