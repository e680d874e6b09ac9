#!/usr/bin/env bash
# Runs the GPU bundle on a machine with a GPU, in parts that end within 9 minutes each:
#
#   run.sh tests       devices, doctor, and the tests on the real driver. Many processes run at
#                      once, so that the driver compiles their kernels in parallel.
#   run.sh bench       trainings on both devices, benchmarks with PyTorch's beside them, and
#                      verdicts on the promises
#   run.sh against     GPT-2's step and its parts, in alternation with PyTorch
#   run.sh sweep       the planners' choices compared with the alternatives, within 6 minutes
#   run.sh sanitizer   compute-sanitizer for a training and some of the tests, Nsight Compute for a
#                      few kernels
#
#   run.sh warm PART   compiles the kernels of a part, as their first use would
#
# Each part writes results-PART.json and log-PART.txt to ${OUT:-./out}, even after failures. It
# prints failures, steps and verdicts last. It fails if any step failed, or if there is no GPU.
# Compiled kernels are kept for the next part.
#
# The limits of the steps do not include compiling. A part compiles its kernels first, unless a mark
# says that this bundle has done so for this driver and GPU. Compiling has a limit of its own of 9
# minutes (WARM_LIMIT seconds). If the machine allows only 9 minutes, run warm beforehand. If
# compiling exceeds its limit, the part measures nothing, says so and fails. The next run continues
# compiling.
#
# TRIAL=1 accepts an emulated GPU and makes all steps small, to check that this script runs.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
here=$PWD
only_warm=
[ "${1:-}" = warm ] && only_warm=1 && shift
mode=${1:-tests}
case $mode in tests | bench | against | sweep | sanitizer) ;; *) echo "usage: run.sh [warm] tests|bench|against|sweep|sanitizer" >&2 && exit 2 ;; esac
trial=${TRIAL:-0}

# Fails at once in a read-only folder, without HOME, or with a full /tmp.
work=$(mktemp -d "${TMPDIR:-/tmp}/flambeau.XXXXXX") || { echo "no temporary folder: set TMPDIR" >&2 && exit 1; }
watchdog=
trap 'kill $watchdog 2>/dev/null; rm -rf "$work"' EXIT
out=${OUT:-./out}
mkdir -p "$out" && out=$(cd "$out" && pwd) && [ -w "$out" ] || { echo "cannot write $out: set OUT" >&2 && exit 1; }
rm -f "$out/results-$mode.json" "$out/log-$mode.txt" # of a run before: what is there afterwards is this one's
if [ -z "${HOME:-}" ] || ! mkdir -p "${XDG_CACHE_HOME:-$HOME/.cache}" 2>/dev/null || ! [ -w "${XDG_CACHE_HOME:-$HOME/.cache}" ]; then
	export HOME=${HOME:-/tmp} XDG_CACHE_HOME=${TMPDIR:-/tmp}/flambeau-cache
	mkdir -p "$XDG_CACHE_HOME"
fi
# Unpacked each time: files of an earlier run may be incomplete, or belong to another bundle.
bin=$work/bin
mkdir "$bin"
for packed in *.gz; do
	[ -e "$packed" ] || continue
	gunzip -c "$packed" >"$bin/${packed%.gz}" && chmod +x "$bin/${packed%.gz}" && [ -x "$bin/${packed%.gz}" ] || { echo "cannot unpack $packed to run it from $bin: set TMPDIR to a folder with 100 MiB where programs may run" >&2 && exit 1; }
done
export PATH=$bin:$PATH PYTHONUNBUFFERED=1
ulimit -c 0

deadline=$((SECONDS + ${LIMIT:-520}))
fail=0
warming= # compiling, not measuring

# limit_of LIMIT prints the limit of a step in seconds. While kernels are compiled, it is the time
# that is left for compiling.
limit_of() {
	if [ "$warming" ]; then echo $((deadline - SECONDS)); else echo "$1"; fi
}

# warm_step NAME COMMAND… runs a step only to compile its kernels. Its failures are ignored, because
# the step itself will report them. Only exceeding the time counts as a failure.
warm_step() {
	local name=$1 rc=0 from=$SECONDS limit=$((deadline - SECONDS))
	shift
	if [ "$limit" -gt 5 ]; then
		[ "$BASHPID" = $$ ] || trap 'kill $! 2>/dev/null; exit 143' TERM
		timeout -k 5 "$limit" "$@" >"$work/cold/$name.log" 2>&1 &
		wait $! || rc=$?
	else
		rc=124
	fi
	# A test binary ends itself shortly before the limit, with a message.
	if [ "$rc" = 124 ] || [ "$rc" = 137 ] || grep -qs '^panic: test timed out' "$work/cold/$name.log"; then
		echo "$name" >>"$work/cold/unfinished"
	fi
	echo "-- warm $name: $((SECONDS - from)) s"
}

# step NAME LIMIT COMMAND… runs a command within its limit and the time left for the whole part.
step() {
	local name=$1 limit=$2 rc=0 from=$SECONDS left=$((deadline - SECONDS))
	shift 2
	if [ "$warming" ]; then
		warm_step "$name" "$@"
		return
	fi
	[ "$left" -lt "$limit" ] && limit=$left
	if [ "$limit" -le 5 ]; then
		echo "no time was left" >"$work/$name.log"
		rc=no_time
	else
		[ "$BASHPID" = $$ ] || trap 'kill $! 2>/dev/null; exit 143' TERM # beside other steps
		timeout -k 5 "$limit" "$@" >"$work/$name.log" 2>&1 &
		wait $! || rc=$?
	fi
	[ "$rc" = 0 ] || fail=1
	printf '%s\t%s\t%s\n' "$name" "$rc" $((SECONDS - from)) >>"$work/steps.txt"
	echo "== $name: $([ "$rc" = 0 ] && echo ok || echo "FAILED ($rc)"), $((SECONDS - from)) s"
	[ "$rc" = 0 ]
}

# show NAME [LINES] prints the end of a step's output.
show() { tail -n "${2:-12}" "$work/$1.log"; }

finish() {
	compare report "$mode" "$work" "$out" || fail=1
	[ -s "$out/results-$mode.json" ] || printf '{"ok":false,"mode":"%s","error":"compare report did not run"}\n' "$mode" >"$out/results-$mode.json"
	echo "$mode: done after $SECONDS s"
	exit $fail
}

# A signal that ends this script also ends the running steps. The results so far are reported.
interrupted() {
	local k
	trap '' TERM INT HUP
	kill $(jobs -pr) 2>/dev/null
	for k in 1 2 3 4 5 6; do [ -z "$(jobs -pr)" ] || sleep 1; done
	for k in "$work"/*.log; do # what was under way
		k=$(basename "$k" .log)
		grep -qs "^$k	" "$work/steps.txt" || printf '%s\tSIG%s\t0\n' "$k" "$1" >>"$work/steps.txt"
	done
	echo "ended from outside by SIG$1" >"$work/interrupted.log"
	printf 'interrupted\tSIG%s\t%s\n' "$1" "$SECONDS" >>"$work/steps.txt"
	fail=1
	finish
}
for signal in TERM INT HUP; do trap "interrupted $signal" "$signal"; done
# watch SECONDS reports the results so far after that time. It is needed because a process that
# hangs in the driver cannot be killed, and a script that waits for it would hang too.
watch() {
	[ -z "$watchdog" ] || kill "$watchdog" 2>/dev/null
	(
		trap 'kill $! 2>/dev/null; exit' TERM
		sleep $(($1 + 25)) &
		wait $! && kill -TERM $$
	) >/dev/null 2>&1 </dev/null &
	watchdog=$!
}
watch "${LIMIT:-520}"

export FLAMBEAU_TEST_GPU=1
[ "$trial" = 1 ] || unset FLAMBEAU_CUDA
step devices 60 sh -c "flambeau devices && flambeau devices --json >'$work/devices.json'"
show devices
if ! grep -qs '"name":"cuda:0"' "$work/devices.json" || { grep -q '"emulated":true' "$work/devices.json" && [ "$trial" != 1 ]; }; then
	step no_gpu 10 sh -c 'echo "there is no GPU; what the driver says:"; flambeau doctor; exit 1'
	finish
fi
command -v nvidia-smi >/dev/null && step nvidia_smi 20 nvidia-smi && show nvidia_smi

# go_test NAME LIMIT BINARY FOLDER PATTERN runs the tests of a package in its folder.
go_test() {
	mkdir -p "$work/src/$4"
	[ -d "$here/src/$4" ] && cp -r "$here/src/$4/." "$work/src/$4/" # tests may write there
	local limit
	limit=$(limit_of "$2")
	step "$1" "$2" sh -c "cd '$work/src/$4' && exec '$3' -test.v -test.timeout $((limit > 10 ? limit - 5 : 5))s -test.run '$5' $6"
}

part_tests() {
	if [ -z "$warming" ]; then
		step doctor 60 sh -c 'flambeau doctor; [ $? -le 1 ]' # 1: the GPU is used, and could be faster
		show doctor 30
	fi
	# First what one process says about a GPU that nobody else uses.
	go_test cu 60 cu.test cuda/internal/cu . ''
	go_test cuda 150 cuda.test cuda 'OnHardware|Hardware|TestCommandOfAGPU|Stream|Event|Record|Pinned|Copy|Expand|Propert|Index|Monitor' "-test.skip 'TestConformance|TestFault'"
	go_test ranks 90 dist.test dist 'TestRanksOnHardware' '' # with two GPUs or more
	go_test fault 60 cuda.test cuda 'TestFaultOnHardware' ''
	# Then many at once. Each compiles its kernels, and all share the cache on disk.
	local k parts=12 running=() group
	if [ "$trial" = 1 ]; then parts=60; fi
	for group in 'Info|Copies|Streams|Memory|MultiMap.*|Concurrency' 'MapPrimitives|MapCasts' MapLayouts MapForms 'Reduce|ReduceForms' 'MatMul|RandomPrograms' \
		'Gather|Scatter|Softmax|Norm|CrossEntropy' 'Scan' 'Argsort'; do
		go_test "conformance_$(echo "$group" | tr -c 'A-Za-z\n' _ | cut -c1-16)" 330 cuda.test cuda "TestConformanceOnHardware/^($group)\$" '' &
		running+=($!)
	done
	for ((k = 0; k < parts; k++)); do
		[ "$trial" = 1 ] && [ "$k" -gt 1 ] && break
		FLAMBEAU_TEST_PART=$k/$parts go_test "optest_$k" 330 optest.test tensor/optest 'TestGPU' '' &
		running+=($!)
	done
	for k in "${running[@]}"; do wait "$k" || fail=1; done
}

# import_pytorch starts to import PyTorch while steps run that do not need it. The first import on a
# machine takes a minute.
import_pytorch() {
	[ "$warming" ] && return
	timeout -k 5 150 python3 -c 'import torch' >/dev/null 2>&1 </dev/null &
	importing=$!
}

# pytorch LIMIT [FLAG…] measures the same cases in PyTorch. Call import_pytorch before.
pytorch() {
	local limit=$1 python=(python3 torch_compare.py) dev=cuda:0
	shift
	[ "$warming" ] && return
	if ! wait "$importing"; then
		echo "no PyTorch for python3 here"
		return
	fi
	if [ "$trial" = 1 ]; then # without what stands for the driver
		python=(env -u LD_LIBRARY_PATH "${python[@]}" --trial) dev=cpu
	fi
	step torch "$limit" sh -c '"$@" >"$0"' "$work/torch.json" "${python[@]}" "$@" "$dev"
}

part_bench() {
	local steps=200 flags=() form trial_flag=
	if [ "$trial" = 1 ]; then steps=2 flags=(--batch 4) trial_flag=-trial; fi
	[ "$warming" ] && steps=2 trial_flag="$trial_flag -seconds 0.01" # the same kernels, of the same sizes
	import_pytorch
	step bench 170 sh -c "compare $trial_flag cuda:0 >'$work/bench.json'"
	pytorch 130
	step train_cuda 60 sh -c "flambeau train --device cuda:0 --steps $steps --seed 1 --losses --json ${flags[*]:-} >'$work/train_cuda.json'"
	[ "$warming" ] || step train_cpu 60 sh -c "flambeau train --device cpu --steps $steps --seed 1 --losses --json ${flags[*]:-} >'$work/train_cpu.json'"
	[ "$trial" = 1 ] || [ "$warming" ] || step train_full 60 sh -c "flambeau train --device cuda:0 --json >'$work/train_full.json'"
	for form in bf16 fp16; do
		step "train_$form" 60 sh -c "flambeau train --device cuda:0 --steps $steps --seed 1 ${flags[*]:-} --amp $form --checkpointing --profile '$work/profile.txt' --json >'$work/train_$form.json' && cat '$work/profile.txt'"
	done
	[ "$warming" ] || step bench_cpu 60 sh -c "compare $trial_flag -seconds 1 -only '^(mlp|cnn|chargpt_b32\$|matmul_4096)' cpu >>'$work/bench.json'"
}

# PyTorch compiles too, and stores the result where our compiled kernels are.
part_against() {
	local python=(python3 torch_against.py) dev=cuda:0 flags=() limit=400
	[ "$warming" ] && flags=(-rounds 1 -seconds 0.01)
	if [ "$trial" = 1 ]; then # without what stands for the driver
		python=(env -u LD_LIBRARY_PATH -u FLAMBEAU_CUDA "${python[@]}" --trial) dev=cpu flags=(-trial -rounds 2)
	fi
	export TORCHINDUCTOR_CACHE_DIR=${XDG_CACHE_HOME:-$HOME/.cache}/flambeau/inductor
	export TRITON_CACHE_DIR=${XDG_CACHE_HOME:-$HOME/.cache}/flambeau/triton
	if ! timeout -k 5 150 python3 -c 'import torch' >/dev/null 2>&1 </dev/null; then
		[ "$trial" = 1 ] || step no_pytorch 10 sh -c 'echo "python3 here has no PyTorch: there is nothing to compare with"; exit 1'
		python=() dev=
	fi
	step against "$limit" sh -c '"$@" >"$0"' "$work/against.json" compare against "${flags[@]}" cuda:0 "${python[@]}" $dev
	[ "$warming" ] || show against 60
}

part_sweep() {
	[ "$trial" = 1 ] && export FLAMBEAU_SWEEP_TRIAL=1
	import_pytorch
	FLAMBEAU_SWEEP=$work/sweep.json go_test sweep 270 cuda.test cuda 'TestSweep' ''
	pytorch 100 --seconds 0.5 --only '^matmul'
}

part_sanitizer() {
	local tool steps=5
	[ "$trial" = 1 ] && steps=1
	if [ "$warming" ]; then # without the tools, which slow down what they look at
		step train 60 flambeau train --device cuda:0 --steps 1 --batch 32
		FLAMBEAU_TEST_PART=7/60 step optest 60 "$bin/optest.test" -test.run TestGPU
		[ "$trial" = 1 ] || step compare 60 compare -seconds 0.01 -only '^(matmul_4096_f32|add_256M_f32|matmul_4096_bf16|softmax_256M_f32)$' cuda:0
		return
	fi
	if command -v compute-sanitizer >/dev/null; then
		for tool in memcheck racecheck synccheck initcheck; do
			step "sanitizer_$tool" 60 compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 20 "$bin/flambeau" train --device cuda:0 --steps $steps --batch 32
		done
		for tool in memcheck racecheck; do # one op in sixty, and graphs
			FLAMBEAU_TEST_PART=7/60 step "sanitizer_optest_$tool" 75 compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 20 "$bin/optest.test" -test.v -test.run TestGPU
		done
	else
		echo "compute-sanitizer is not here"
		[ "$trial" = 1 ] || step no_sanitizer 10 sh -c 'echo "compute-sanitizer, of the CUDA toolkit, is not in PATH: nothing was checked"; exit 1'
	fi
	local case
	if command -v ncu >/dev/null; then # where counters are not to be had, that is told
		for case in matmul_4096_f32 add_256M_f32 matmul_4096_bf16 softmax_256M_f32; do # behind the launches that make the operands
			step "ncu_$case" 45 ncu --clock-control none --launch-skip 6 --launch-count 2 --metrics \
				gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,sm__throughput.avg.pct_of_peak_sustained_elapsed,sm__warps_active.avg.pct_of_peak_sustained_active,launch__registers_per_thread \
				"$bin/compare" -seconds 0.01 -only "^$case\$" cuda:0
			show "ncu_$case" 16
		done
	else
		echo "ncu is not here"
	fi
}

# The file mark exists if this bundle has compiled all kernels of the part for this driver and GPU.
mark=${XDG_CACHE_HOME:-$HOME/.cache}/flambeau/warm-$mode-$({ cat "$here/commit.txt"; grep -o '"product":"[^"]*"\|"driver_version":"[^"]*"' "$work/devices.json"; } 2>/dev/null | cksum | tr -d ' ')

# warm_part compiles the kernels of the part. It fails if some are left to compile.
warm_part() {
	local limit=${WARM_LIMIT:-520}
	echo "compiling kernels, for at most $limit s"
	mkdir -p "$work/cold"
	deadline=$((SECONDS + limit)) warming=1
	watch "$limit"
	"part_$mode"
	warming= deadline=$((SECONDS + ${LIMIT:-520}))
	watch "${LIMIT:-520}"
	[ -e "$work/cold/unfinished" ] && return 1
	mkdir -p "$(dirname "$mark")" && : >"$mark"
	return 0
}

if [ "$only_warm" ] || { [ ! -e "$mark" ] && [ "$trial" != 1 ]; }; then
	if ! warm_part; then
		step cold 10 sh -c "echo 'kernels are still to be compiled; run it again, it goes on where it was:'; cat '$work/cold/unfinished'; exit 1"
		finish
	fi
	[ -z "$only_warm" ] || { step warm 10 true && finish; }
fi
"part_$mode"
finish
