#!/usr/bin/env bash
# Runs the GPU bundle: tests on the real driver, a subset under compute-sanitizer, a training on both devices, benchmarks beside
# PyTorch. Writes results.json and log.txt into ${OUT:-./out}. Fails when there is no GPU; ends within 8 minutes.
set -uo pipefail
cd "$(dirname "$0")"
here=$PWD
for packed in *.gz; do
	[ -e "$packed" ] && gunzip -f "$packed" && chmod +x "${packed%.gz}"
done
out=${OUT:-./out}
mkdir -p "$out"
out=$(cd "$out" && pwd)
log=$out/log.txt
: >"$log"
deadline=$((SECONDS + 470))
fail=0
declare -A seconds status

say() { echo "$*" | tee -a "$log"; }

# step NAME LIMIT COMMAND…: runs a command within its limit and what is left of the whole.
step() {
	local name=$1 limit=$2
	shift 2
	local left=$((deadline - SECONDS))
	[ "$left" -lt "$limit" ] && limit=$left
	if [ "$limit" -le 5 ]; then
		say "== $name: no time left"
		status[$name]=no_time
		fail=1
		return 1
	fi
	say "== $name"
	local from=$SECONDS rc=0
	timeout "$limit" "$@" >"$out/step.txt" 2>&1 || rc=$?
	cat "$out/step.txt" >>"$log"
	tail -n 12 "$out/step.txt"
	seconds[$name]=$((SECONDS - from))
	status[$name]=$rc
	if [ "$rc" -ne 0 ]; then
		say "== $name FAILED ($rc)"
		fail=1
	fi
	return "$rc"
}

export FLAMBEAU_TEST_GPU=1
unset FLAMBEAU_CUDA
step devices 30 ./flambeau devices
./flambeau devices --json >"$out/devices.json" 2>>"$log"
if ! grep -q '"name":"cuda:0"' "$out/devices.json" || grep -q '"emulated":true' "$out/devices.json"; then
	say "no real GPU was found: $(cat "$out/devices.json")"
	echo '{"ok":false,"error":"no GPU"}' >"$out/results.json"
	exit 1
fi
step doctor 30 sh -c "./flambeau doctor; [ \$? -le 1 ]" # 1: the GPU is used, and could be faster
command -v nvidia-smi >/dev/null && step nvidia_smi 20 nvidia-smi

while read -r binary package; do
	(cd "src/$package" && true) || mkdir -p "src/$package"
	step "test_$binary" 150 sh -c "cd 'src/$package' && '$here/$binary' -test.timeout 140s -test.v"
done <tests.txt

if command -v compute-sanitizer >/dev/null; then
	for tool in memcheck racecheck; do
		step "sanitizer_$tool" 60 compute-sanitizer --tool "$tool" --error-exitcode 9 ./flambeau train --device cuda --steps 5 --batch 32
	done
else
	say "compute-sanitizer is not here"
fi

step train_cuda 60 sh -c "./flambeau train --device cuda:0 --steps 200 --seed 1 --losses --json >'$out/train_cuda.json'"
step train_cpu 60 sh -c "./flambeau train --device cpu --steps 200 --seed 1 --losses --json >'$out/train_cpu.json'"
step train_full 60 sh -c "./flambeau train --device cuda:0 --json >'$out/train_full.json'"
for form in bf16 fp16; do
	step "train_$form" 60 sh -c "./flambeau train --device cuda:0 --steps 200 --seed 1 --amp $form --checkpointing --profile '$out/profile_$form.txt' --json"
done
step bench 110 sh -c "./compare cpu cuda:0 >'$out/bench.json'"
if python3 -c 'import torch' 2>/dev/null; then
	step torch 110 sh -c "python3 torch_compare.py cuda:0 >'$out/torch.json'"
fi

# Put it together with what is surely there: awk for the comparison of losses, shell for the rest.
losses() { sed -n 's/.*"losses":\[\([^]]*\)\].*/\1/p' "$1" | tr ',' '\n'; }
worst=$(paste <(losses "$out/train_cuda.json") <(losses "$out/train_cpu.json") 2>/dev/null |
	awk '{d=$1-$2; if(d<0)d=-d; m=$2>1?$2:1; if(d/m>w)w=d/m} END{printf "%.3g", w}')
say "largest difference of 200 losses, cuda:0 and cpu, relative to max(1, loss): ${worst:-none}"
[ -n "$worst" ] && awk "BEGIN{exit !($worst <= 1e-2)}" || { say "the losses differ"; fail=1; }
ratio() { # CASE: rate of cuda:0 over cpu
	tr '{' '\n' <"$out/bench.json" | awk -v c="\"case\":\"$1\"" 'index($0,c){match($0,/"rate":[0-9.e+]*/); r=substr($0,RSTART+7,RLENGTH-7); if(index($0,"\"device\":\"cpu\""))a=r; else b=r} END{if(a>0)printf "%.3g", b/a}'
}
for c in mlp_digits_b32 mlp_784_4096_4096_10_b128 matmul_4096_f32; do
	say "cuda:0 over cpu, $c: $(ratio $c)"
done
{
	printf '{"ok":%s,"commit":"%s","date":"%s","largest_loss_difference":%s,\n' "$([ $fail -eq 0 ] && echo true || echo false)" \
		"$(cat commit.txt)" "$(date -u +%FT%TZ)" "${worst:-null}"
	printf ' "devices":%s,\n "train_full":%s,\n "bench":%s,\n "torch":%s,\n "steps":{' "$(cat "$out/devices.json")" \
		"$(cat "$out/train_full.json" 2>/dev/null || echo null)" "$(cat "$out/bench.json" 2>/dev/null || echo null)" "$(cat "$out/torch.json" 2>/dev/null || echo null)"
	sep=
	for k in "${!status[@]}"; do
		printf '%s"%s":{"status":"%s","seconds":%s}' "$sep" "$k" "${status[$k]}" "${seconds[$k]:-0}"
		sep=,
	done
	printf '}}\n'
} >"$out/results.json"
rm -f "$out/step.txt"
say "done after $SECONDS s: $([ $fail -eq 0 ] && echo ok || echo FAILED)"
exit $fail
