#!/bin/bash
# NVIDIA GPUs in containers: devices, libraries, a program of CUDA that computes, NVML, nvidia-smi, MPS, Vulkan and PyTorch,
# as root and as a plain user, from a directory and from an image that is one file. On a node without a GPU all but Vulkan is
# tried with a stand-in for the driver, made by a compiler. Nothing of the GPU's settings is changed.
# usage: integration/gpu.sh RT [--write]
#   --write    only with a real GPU; the results go to integration/gpu/RESULTS.md and results.tsv
# On a machine without network or compiler it needs what `integration/gpu/kit integration/work/gpu` has made elsewhere.
set -uo pipefail
cd "$(dirname "$0")/.."
. integration/tap
whole=yes # expectations span lines
rt=$(realpath "${1:-build/rt}")
write=${2:-}
bin=$(dirname "$rt")
uid=23456
if [ -n "$write" ] && [ ! -e /proc/driver/nvidia/version ]; then
	echo "gpu: no GPU of NVIDIA's here: there is no /proc/driver/nvidia/version" >&2
	exit 1
fi
kit=integration/work/gpu
if [ ! -e $kit/ready ] && ! integration/gpu/kit $kit; then
	skip_all "what the node needs can be made on Debian only"
fi
kit=$(realpath $kit)
# Mounts of our own: a directory for CDI, and /dev/fuse as nodes have it, where the machine's is root's only.
if [ "$(id -u)" = 0 ] && [ -z "${RT_GPU_INSIDE:-}" ]; then
	RT_GPU_INSIDE=1 exec unshare --mount --propagation private "$0" "$rt" $write
fi

# A driver that was brought to the node has a tree of its own.
PATH=$PATH:/usr/local/nvidia/bin

work=$(mktemp -d)
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT
# What is printed is also kept, for the results.
exec 3>&1 > >(tee "$work/log" >&3)
printer=$!
mkdir "$work"/{bin,hooks.d,root,user,programs}
cp "$bin"/rt* "$work/bin/" 2>/dev/null
cp -a "$kit/programs" "$work/"
cp -a "$kit/rootfs" "$kit/image.sqsh" "$work/"
rt=$work/bin/rt

# The node: this one, or one that is made up.
node= options=
if [ ! -e /proc/driver/nvidia/version ]; then
	node=$work/node
	if ! integration/gpu/standin "$node"; then
		skip_all "no compiler for the stand-in"
	fi
	options=", \"--root\", \"$node\""
fi
cat >"$work/hooks.d/gpu.json" <<END
{"version": "1.0.0", "when": {"always": true}, "stages": ["precreate", "createRuntime"],
 "hook": {"path": "$work/bin/rt-hook-gpu", "args": ["rt-hook-gpu"$options]}}
END
driver=$(sed -n 's/^NVRM[^0-9]* \(x86_64 \|aarch64 \)\?[^0-9]*\([0-9][0-9.]*\) .*/\2/p' "$node/proc/driver/nvidia/version")
count=$(ls "$node/proc/driver/nvidia/gpus" | wc -l)
gpus=$(cat "$node"/proc/driver/nvidia/gpus/*/information | sed -n 's/^Model:[[:space:]]*//p' | sort | uniq -c | sed 's/^ *//')
note "driver $driver, $count GPUs: $gpus${node:+ (stand-in)}"
sums="($(for ((n = 0; n < count; n++)); do printf 'GPU %s: .*: 16777216 sums are right.' $n; done))"

callers=root
if [ "$(id -u)" = 0 ]; then callers="root user"; else callers=user; fi
# For checkpoints: criu, and the program that parts others from their GPUs, with the driver's library where the linker does not look.
criu=$work/criu/usr/sbin/criu cuda=$work/cuda-checkpoint
cp -a "$kit/criu" "$work/" 2>/dev/null
if [ -n "$node" ]; then
	cp "$node/usr/bin/cuda-checkpoint" "$cuda"
else
	cp "$kit/cuda-checkpoint" "$cuda" 2>/dev/null
fi
become() { # WHO COMMAND...: in this process's place, with nothing of the caller's environment
	local who=$1 drop=()
	shift
	[ "$who" != user ] || [ "$(id -u)" != 0 ] || drop=(setpriv --reuid $uid --regid $uid --clear-groups)
	exec "${drop[@]}" env -i PATH="$PATH" HOME="$work/$who" RT_CRIU="$criu" RT_CUDA_CHECKPOINT="$cuda" \
		LD_LIBRARY_PATH=/usr/local/nvidia/lib64 "$@"
}
as() { (become "$@"); }
if [ "$(id -u)" = 0 ]; then
	mkdir -p /run/cdi
	mount -t tmpfs -o mode=755 cdi /run/cdi
	if [ "$(stat -c %a /dev/fuse 2>/dev/null)" != 666 ] && mknod -m 666 "$work/fuse" c 10 229 2>/dev/null; then
		[ -e /dev/fuse ] && mount --bind "$work/fuse" /dev/fuse
	fi
	chown $uid:$uid "$work/user"
fi

# Does the machine itself compute? Without that nothing below says anything.
baseline() {
	if [ -n "$node" ]; then
		[ -c "$node/dev/nvidiactl" ] || [ -f "$node/dev/nvidiactl" ]
	else
		LD_LIBRARY_PATH=/usr/local/nvidia/lib64:${LD_LIBRARY_PATH:-} "$work/programs/cuda"
	fi
}
check node 0 "" baseline
[ $failed = 0 ] || { done_testing; exit; }

given() { # NVIDIA's part of the container's surroundings, and the rest of run's command line
	local who=$1 asked=$2
	shift 2
	as "$who" "$rt" run --hooks-dir "$work/hooks.d" -e "NVIDIA_VISIBLE_DEVICES=$asked" -e NVIDIA_DRIVER_CAPABILITIES=all "$@"
}
mps() { # WHO
	local who=$1 pipe=$work/$1/mps daemon control=$node/usr/bin/nvidia-cuda-mps-control server clients= n
	[ -n "$node" ] || control=$(command -v nvidia-cuda-mps-control)
	mkdir -p "$node$pipe" "$pipe-log"
	[ "$who" = root ] || [ "$(id -u)" != 0 ] || chown $uid:$uid "$node$pipe" "$pipe-log"
	local all=(env CUDA_MPS_PIPE_DIRECTORY="$node$pipe" CUDA_MPS_LOG_DIRECTORY="$pipe-log")
	as "$who" "${all[@]}" "$control" -d || return
	given "$who" all --pid host --ipc host -e "CUDA_MPS_PIPE_DIRECTORY=$pipe" "$work/$who/plain" -- cuda 6 &
	daemon=$!
	for ((n = 0; n < 50; n++)); do # the first client starts the server
		sleep 0.2
		for server in $(echo get_server_list | as "$who" "${all[@]}" timeout 10 "$control" 2>/dev/null); do
			clients="$(echo "get_client_list $server" | as "$who" "${all[@]}" timeout 10 "$control" 2>/dev/null)"
		done
		[ -z "$clients" ] || break
	done
	wait $daemon
	local status=$?
	echo "clients of the server: $(wc -w <<<"$clients")"
	echo quit | as "$who" "${all[@]}" timeout 20 "$control" >/dev/null 2>&1
	cat "$pipe-log"/*.log 2>/dev/null | tail -n 5
	return $status
}
within() { # WHO: a program that is started in a running container
	local status
	given "$1" all -d -b "$work/$1/plain" gpu-exec -- sleep 1000 || return
	as "$1" "$rt" exec gpu-exec cuda
	status=$?
	as "$1" "$rt" delete --force gpu-exec
	return $status
}
# Numbers that a program counts in the memory of a GPU, in one file over all its checkpoints: none is missing, none is there twice.
LAST=60
appending() { # WHO COMMAND...: in this process's place, with the file as output
	local who=$1
	shift
	become "$who" "$@" >>"$work/$who/numbers" 2>"$work/$who/errors" </dev/null
}
reach() { # WHO NUMBER: wait for it
	for _ in $(seq 200); do
		grep -qx "$2" "$work/$1/numbers" && return
		sleep 0.1
	done
	cat "$work/$1/numbers" "$work/$1/errors"
	return 1
}
complete() { # WHO
	# A container that is detached says its name first.
	grep -v '^gpu-' "$work/$1/numbers" | cmp <(seq $LAST) - && echo "all numbers"
}
counts() { # WHO SHAPE FLAGS...: start a program that counts
	local who=$1 shape=$2
	shift 2
	rm -rf "$work/$who"/{image,numbers,errors}
	as "$who" touch "$work/$who"/{numbers,errors}
	(appending "$who" "$rt" run -d --name "gpu-$shape" --hooks-dir "$work/hooks.d" "$@" "$work/$who/kept" -- count 50 $LAST)
	reach "$who" 5
}
written() { # WHO SHAPE FLAGS...
	local who=$1 shape=$2
	shift 2
	become "$who" "$rt" checkpoint "$@" --image-path "$work/$who/image" "gpu-$shape"
}
finished() { # WHO SHAPE: the program comes to its end
	reach "$1" $LAST && complete "$1"
	local status=$?
	as "$1" "$rt" delete --force "gpu-$2"
	return $status
}
kept() { # WHO SHAPE FLAGS...: a checkpoint after which the program goes on, and one that ends it
	local who=$1 shape=$2
	counts "$@" && (written "$who" "$shape" --leave-running) && reach "$who" 15 && (written "$who" "$shape") &&
		(appending "$who" "$rt" restore -d -b "$work/$who/kept" --hooks-dir "$work/hooks.d" \
			--image-path "$work/$who/image" "gpu-$shape")
	finished "$who" "$shape"
}
killed() { # WHO: a call of rt that is killed when it has parted the program from the GPU
	local who=$1 runs pid state
	counts "$who" killed --pid private --init || return
	pid=$(as "$who" "$rt" ps --format json gpu-killed | grep -o '[0-9]*' | tail -n 1)
	written "$who" killed &
	runs=$!
	for _ in $(seq 500); do
		state=$(as "$who" "$cuda" --get-state --pid "$pid")
		[ "$state" = running ] || break
	done
	kill -9 $runs
	wait $runs
	echo "left: $state"
	as "$who" "$rt" resume gpu-killed
	finished "$who" killed
}
forked() { # WHO: the program in two more containers, which count on by themselves. CUDA binds a socket by a name, once in a network.
	local who=$1 name numbers status=0
	counts "$who" warm --pid private --init --net none && as "$who" "$rt" fork gpu-warm gpu-one gpu-two || status=1
	finished "$who" warm || status=1
	[ $status = 0 ] || return 1
	for name in one two; do
		for _ in $(seq 100); do
			numbers=$(as "$who" "$rt" logs gpu-$name)
			[ "${numbers##*$'\n'}" != $LAST ] || break
			sleep 0.1
		done
		cmp <(seq "${numbers%%$'\n'*}" $LAST) <(echo "$numbers") || status=1
		as "$who" "$rt" delete --force gpu-$name || status=1
	done
	return $status
}
again() { # WHO FLAGS... IMAGE -- COMMAND...: as in a batch script that is told to end, twice
	local who=$1 n runs
	rm -rf "$work/$who"/{again,numbers,errors}
	as "$who" touch "$work/$who"/{numbers,errors}
	for n in 10 30 $LAST; do
		appending "$who" "$rt" run --hooks-dir "$work/hooks.d" -e NVIDIA_VISIBLE_DEVICES=all -e NVIDIA_DRIVER_CAPABILITIES=all \
			--checkpoint "$work/$who/again" "${@:2}" &
		runs=$!
		reach "$who" $n
		[ $n = $LAST ] || kill -USR1 $runs
		wait $runs
		echo "exit code $?"
		cat "$work/$who/errors"
	done
	complete "$who"
}
hosts() { # WHO COMMAND...: in a container of the host's own userland
	local who=$1
	shift
	given "$who" all "${own[@]}" "$work/$who/host" -- "$@"
}

for who in $callers; do
	for kind in plain file host; do
		as "$who" mkdir "$work/$who/$kind"
		(cd / && as "$who" "$rt" spec $([ $kind != host ] || echo --host) -b "$work/$who/$kind" </dev/null)
	done
	sed -i "s|\"path\": \"rootfs\"|\"path\": \"$work/rootfs\"|" "$work/$who/plain/config.json"
	sed -i "s|\"path\": \"rootfs\"|\"path\": \"$work/image.sqsh\"|" "$work/$who/file/config.json"
	plain=$work/$who/plain
	check "$who/devices" 0 "/dev/nvidia0.*/dev/nvidiactl.*ModifyDeviceFiles: 0" given $who all "$plain" -- \
		sh -c 'ls -1 /dev/nvidia*; cat /proc/driver/nvidia/params'
	check "$who/cuda" 0 "CUDA [0-9.]*, GPUs: $count.$sums" given $who all "$plain" -- cuda
	check "$who/one" 0 "GPUs: 1.GPU 0: .* sums are right" given $who 0 "$plain" -- cuda
	uuid=$(sed -n 's/^GPU UUID:[[:space:]]*//p' "$(ls -d "$node"/proc/driver/nvidia/gpus/*/information | head -n 1)")
	# What /proc knows it knows from the first use of the GPU since the start of the machine.
	[[ $uuid != *\?* ]] || uuid=$(nvidia-smi -L | sed -n 's/^GPU 0:.*UUID: \([^)]*\)).*/\1/p')
	check "$who/uuid" 0 "GPUs: 1.GPU 0: .* sums are right" given $who "$uuid" "$plain" -- cuda
	check "$who/void" 1 "no library: libcuda.so.1" given $who void "$plain" -- cuda
	check "$who/compute-alone" 1 "GPUs: $count.*no library: libnvidia-ml" given $who all -e NVIDIA_DRIVER_CAPABILITIES=compute \
		"$plain" -- sh -c 'cuda && nvml'
	check "$who/nvml" 0 "NVML: driver $driver, GPUs: $count.*$uuid" given $who all "$plain" -- nvml
	if [ -n "$node" ] || command -v nvidia-smi >/dev/null; then
		check "$who/nvidia-smi" 0 "GPU 0: .*$uuid" given $who all "$plain" -- nvidia-smi -L
	else
		skip "$who/nvidia-smi" "the node has none"
	fi
	check "$who/exec" 0 "$sums" within $who
	if [ -r /dev/fuse ] && [ -w /dev/fuse ]; then
		check "$who/file" 0 "GPUs: $count.$sums" given $who all "$work/$who/file" -- cuda
		check "$who/file/nvml" 0 "NVML: driver $driver" given $who all "$work/$who/file" -- nvml
		# In the profile hpc, which has the node's own /dev.
		if [ -z "$node" ]; then
			check "$who/file/hpc" 0 "GPUs: $count.$sums" given $who all "$work/image.sqsh" -- cuda
		fi
	else
		skip "$who/file" "no /dev/fuse"
	fi
	if [ ! -x "$criu" ] || [ ! -x "$cuda" ]; then
		skip "$who/checkpoint" "the kit has no criu or no cuda-checkpoint"
	else
		as "$who" mkdir "$work/$who/kept"
		sed 's|"env": \[|&"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=all",|; s|"terminal": true|"terminal": false|' \
			"$plain/config.json" | as "$who" tee "$work/$who/kept/config.json" >/dev/null
		check "$who/checkpoint/init" 0 "all numbers" kept $who init --pid private --init
		check "$who/checkpoint/first" 0 "all numbers" kept $who first
		check "$who/checkpoint/killed" 0 "left: (locked|checkpointed).*all numbers" killed $who
		check "$who/checkpoint/fork" 0 "all numbers" forked $who
		check "$who/checkpoint/again" 0 "exit code 75.exit code 75.exit code 0.all numbers" again $who "$plain" -- count 50 $LAST
		# As in a batch job: an image that is one file, with the profile hpc.
		if [ -z "$node" ] && [ -r /dev/fuse ] && [ -w /dev/fuse ]; then
			check "$who/checkpoint/hpc" 0 "exit code 75.exit code 75.exit code 0.all numbers" again $who "$work/image.sqsh" -- count 50 $LAST
		fi
	fi
	check "$who/file/extracted" 0 "GPUs: $count.$sums" given $who all --extract "$work/$who/file" -- cuda
	if [ "$(id -u)" = 0 ]; then
		"$work/bin/rt-hook-gpu" cdi ${node:+--root "$node"} >/run/cdi/nvidia.json
		check "$who/cdi" 0 "GPUs: $count.$sums" as $who "$rt" run --device nvidia.com/gpu=all "$plain" -- cuda
	fi
	if [ -n "$node" ] || command -v nvidia-cuda-mps-control >/dev/null; then
		check "$who/mps" 0 "sums are right.*clients of the server: [1-9]" mps $who
	else
		skip "$who/mps" "the node has no nvidia-cuda-mps-control"
	fi
	if [ -z "$node" ] && { ldconfig -p | grep -q libGLX_nvidia || [ -e /usr/local/nvidia/lib64/libGLX_nvidia.so.0 ]; }; then
		check "$who/vulkan" 0 "1048576 bytes are filled" given $who all "$plain" -- vulkan
	else
		skip "$who/vulkan" "the node has no libGLX_nvidia"
	fi
	# What users run: the host's PyTorch, if it has one, in a container of the host's userland.
	python= own=()
	if [ -z "$node" ]; then
		for each in python3 /opt/*/bin/python3 /opt/*/.venv/bin/python3; do
			if as $who "$each" -c 'import torch' 2>/dev/null; then python=$each && break; fi
		done
	fi
	if [ -n "$python" ]; then
		# The directories that hold it, but for those that the bundle has.
		for dir in $(as $who "$python" -c 'import os, sys, torch
for path in {sys.prefix, sys.base_prefix, os.path.dirname(torch.__file__)}: print("/" + path.split("/")[1])' | sort -u); do
			case $dir in /usr | /etc | /opt | /lib | /lib64 | /bin) ;; *) own+=(-v "$dir:$dir:ro") ;; esac
		done
		check "$who/torch" 0 "torch: right on NVIDIA" hosts $who "$(command -v "$python")" -c 'import torch
a = torch.randn(2048, 2048, device="cuda", dtype=torch.float64)
b = a @ a
c = (a.cpu() @ a.cpu())
print("torch:", "right" if torch.allclose(b.cpu(), c) else "wrong", "on", torch.cuda.get_device_name(0))'
		if [ -x "$criu" ] && [ -x "$cuda" ]; then
			check "$who/checkpoint/torch" 0 "exit code 75.exit code 75.exit code 0.all numbers" again $who "${own[@]}" "$work/$who/host" -- \
				"$(command -v "$python")" -uc "import time, torch
a = torch.zeros(4096, 4096, device='cuda')
for _ in range($LAST):
    a += torch.ones_like(a)
    time.sleep(0.05)
    print(round(a.mean().item()))"
		fi
	else
		skip "$who/torch" "the node has no PyTorch"
	fi
done

exec >&3
wait $printer
if [ -n "$write" ]; then
	{
		echo '# What ran on a real GPU'
		echo
		echo '`make test-gpu` writes this file: `integration/gpu.sh` on a machine that has a GPU of NVIDIA'"'"'s.'
		echo
		echo '| | |'
		echo '|---|---|'
		echo "| date | $(date -u +%Y-%m-%d) |"
		echo "| driver | $driver |"
		echo "| GPUs | $gpus |"
		echo "| kernel | $(uname -r), $(uname -m) |"
		echo "| rt | $("$rt" --version | head -n 1) |"
		echo "| result | $passed passed, $failed failed, $skipped skipped |"
		echo
		echo '[results.tsv](results.tsv) has the cases.'
	} >integration/gpu/RESULTS.md
	{
		printf 'case\tresult\n'
		sed -nE 's/^ok [0-9]+ - (.*) # SKIP (.*)/\1\tskipped: \2/p; t; s/^ok [0-9]+ - (.*)/\1\tpassed/p; s/^not ok [0-9]+ - (.*)/\1\tFAILED/p' "$work/log"
	} >integration/gpu/results.tsv
	note "the results are in integration/gpu/RESULTS.md"
fi
done_testing
