package ptxvm

// lanes holds one register of a warp. Values are zero-extended from the width of their type.
type lanes [32]uint64

const fullMask = ^uint32(0)

// kind says how the warp loop executes an instruction.
type kind uint8

const (
	kALU    kind = iota // d = alu(a, b, c), lane by lane
	kCmp                // predicates from cmp(a, b)
	kSelp               // d = p ? a : b
	kBranch             // the instruction bra
	kExit               // the instructions ret (of an entry) and exit
	// kRun is for all instructions without a kind of their own. The field run executes them.
	kRun
	kTable  // the instruction brx.idx
	kCall   // the instruction call
	kReturn // end of a function
	// like kRun, but the instruction waits until the lanes that it needs have gathered
	kSync
	kNop
)

type inst struct {
	kind  kind
	not   bool  // whether the guard is negated
	uni   bool  // whether the branch is bra.uni
	fma   bool  // whether the instruction counts in Stats.FMA
	guard int32 // predicate slot of the guard; 0 for no guard
	d     int32 // destination register slot
	// Source registers have slots too. An unused source has slot 0, the constant zero.
	a int32
	b int32
	c int32
	// p is a predicate slot: the source of selp, or the first destination of setp.
	p int32
	// q is a predicate slot: the second destination of setp, or 0 for none.
	q      int32
	target int32 // branch target
	rpc    int32 // index of the reconvergence point of a branch; -1 for none
	line   int32
	alu    func(d, a, b, c *lanes)
	cmp    func(a, b *lanes) uint32
	run    func(w *warp, in *inst, m uint32)
	x      *extra
}

// extra holds the fields that only some instructions need.
type extra struct {
	typ    Type
	space  space
	off    int64   // address offset
	size   int     // size of an element in bytes
	vec    []int32 // vector registers, and fragment registers of mma and ldmatrix
	vb, vc []int32
	vd     []int32
	// ext is the width from which loaded elements are sign-extended. It is 0 if they are
	// zero-extended.
	ext uint8
	// strong is set for volatile, relaxed, acquire and release accesses. Two such accesses do not
	// race.
	strong  bool
	release bool // the access has the modifier .release or .acq_rel
	acquire bool // the access has the modifier .acquire or .acq_rel
	block   bool // the access has block scope
	mode    uint8
	combine uint8 // operator of setp.and, setp.or or setp.xor
	pn      bool  // whether the combined predicate is negated
	p       int32
	count   int32 // slot of the register with the number of arrivals
	hasCnt  bool
	n       int
	counted bool    // whether Stats already include the request
	whole   bool    // whether a vector load uses all elements and extends none
	table   []int32 // targets of brx.idx
	call    *callSite
	members int32 // slot of the member mask
	atom    func(old, b, c uint64) uint64
}

// constSlot is a register slot with the same value in all lanes: a constant, or an address that is
// known at launch.
type constSlot struct {
	slot int32
	val  uint64
	// If global is not nil, val is an offset from the address of this variable.
	global *variable
	// If dyn is true, val is an offset from the start of dynamic shared memory.
	dyn bool
}

// special is a special register whose value is stored in a slot when a warp starts.
type special uint8

const (
	srTidX special = iota
	srTidY
	srTidZ
	srNtidX
	srNtidY
	srNtidZ
	srCtaidX
	srCtaidY
	srCtaidZ
	srNctaidX
	srNctaidY
	srNctaidZ
	srLaneid
	srWarpid
	srNwarpid
	srSmid
	srNsmid
	srGridid
	srMaskEq
	srMaskLt
	srMaskLe
	srMaskGt
	srMaskGe
	srDynShared
	srTotalShared
	srZero // a register of clusters that is always 0, because an emulated cluster has one block
	srOne
	// srClock and the registers after it are read when an instruction uses them.
	srClock
	srClockHi
	srClock64
	srGlobaltimer
	srGlobaltimerLo
	srGlobaltimerHi
)

type specialUse struct {
	sr   special
	slot int32
}

var specialByName = map[string]special{
	"%tid.x": srTidX, "%tid.y": srTidY, "%tid.z": srTidZ, "%ntid.x": srNtidX, "%ntid.y": srNtidY, "%ntid.z": srNtidZ,
	"%ctaid.x": srCtaidX, "%ctaid.y": srCtaidY, "%ctaid.z": srCtaidZ, "%nctaid.x": srNctaidX, "%nctaid.y": srNctaidY, "%nctaid.z": srNctaidZ,
	"%laneid": srLaneid, "%warpid": srWarpid, "%nwarpid": srNwarpid, "%smid": srSmid, "%nsmid": srNsmid, "%gridid": srGridid,
	"%lanemask_eq": srMaskEq, "%lanemask_lt": srMaskLt, "%lanemask_le": srMaskLe, "%lanemask_gt": srMaskGt, "%lanemask_ge": srMaskGe,
	"%clusterid.x": srCtaidX, "%clusterid.y": srCtaidY, "%clusterid.z": srCtaidZ, "%nclusterid.x": srNctaidX, "%nclusterid.y": srNctaidY, "%nclusterid.z": srNctaidZ,
	"%cluster_ctaid.x": srZero, "%cluster_ctaid.y": srZero, "%cluster_ctaid.z": srZero, "%cluster_nctaid.x": srOne, "%cluster_nctaid.y": srOne, "%cluster_nctaid.z": srOne,
	"%cluster_ctarank": srZero, "%cluster_nctarank": srOne,
	"%dynamic_smem_size": srDynShared, "%total_smem_size": srTotalShared,
	"%clock": srClock, "%clock_hi": srClockHi, "%clock64": srClock64, "%globaltimer": srGlobaltimer,
	"%globaltimer_lo": srGlobaltimerLo, "%globaltimer_hi": srGlobaltimerHi,
}

func (s special) wide() bool { return s == srClock64 || s == srGlobaltimer || s == srGridid }
