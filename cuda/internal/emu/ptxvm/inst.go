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
	kRun                // calls the field run; for every instruction without its own kind
	kTable              // the instruction brx.idx
	kCall               // the instruction call
	kReturn             // end of a function
	// like kRun, but only when the lanes that the instruction needs have gathered
	kSync
	kNop
)

type inst struct {
	kind   kind
	not    bool  // guard is negated
	uni    bool  // the branch is bra.uni
	fma    bool  // counted in Stats.FMA
	guard  int32 // predicate slot, 0: none
	d      int32 // destination register slot
	a      int32 // source register slots; an unused source is slot 0, the constant zero
	b      int32
	c      int32
	p      int32 // predicate: source of selp, first destination of setp
	q      int32 // predicate: second destination of setp, 0: none
	target int32 // branch target
	rpc    int32 // reconvergence point of a branch, -1: none
	line   int32
	alu    func(d, a, b, c *lanes)
	cmp    func(a, b *lanes) uint32
	run    func(w *warp, in *inst, m uint32)
	x      *extra
}

// extra holds the fields that only some instructions need.
type extra struct {
	typ     Type
	space   space
	off     int64   // address offset
	size    int     // element bytes
	vec     []int32 // vector registers, and fragment registers of mma and ldmatrix
	vb, vc  []int32
	vd      []int32
	ext     uint8 // width from which loaded elements are sign-extended, 0: zero-extended
	strong  bool  // volatile, relaxed, acquire, release: two such accesses do not race
	release bool  // .release or .acq_rel
	acquire bool  // .acquire or .acq_rel
	block   bool  // the access has block scope
	mode    uint8
	combine uint8 // operator of setp.and, setp.or or setp.xor
	pn      bool  // the combined predicate is negated
	p       int32
	count   int32 // slot of the register with the count
	hasCnt  bool
	n       int
	counted bool    // Stats already include the request
	whole   bool    // a vector load that uses all elements and extends none
	table   []int32 // targets of brx.idx
	call    *callSite
	members int32 // slot of the member mask
	atom    func(old, b, c uint64) uint64
}

// constSlot is a register slot with the same value in all lanes. The value is constant, or an
// address that is known at launch.
type constSlot struct {
	slot   int32
	val    uint64
	global *variable // val is an offset from its address
	dyn    bool      // val is an offset from the start of dynamic shared memory
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
	srZero // a cluster's register that is always 0, because an emulated cluster has one block
	srOne
	srClock // srClock and the registers after it are read when an instruction uses them
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
