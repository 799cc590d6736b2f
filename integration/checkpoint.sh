#!/bin/bash
# rt checkpoint, rt restore and rt run --checkpoint as a user with one id: each case of checkpoint/cases.c in each kind of container.
# criu comes from the host where it is new enough, else from a root of Debian sid, executed from there. Root starts it.
# usage: integration/checkpoint.sh RT [PART...]   (ROUNDS=N repeats the cases that go on; PART: files of checkpoint/ alone;
# CHECKPOINT_UID=N: a user that nobody else is)
set -uo pipefail
cd "$(dirname "$0")/.."
. integration/tap
rt=$(realpath "${1:-build/rt}")
[ "$(id -u)" = 0 ] || skip_all "only root becomes another user"
if [ -z "${RT_CHECKPOINT_INSIDE:-}" ]; then
	integration/packages gcc libc6-dev strace mmdebstrap busybox-static util-linux squashfs-tools python3
	RT_CHECKPOINT_INSIDE=1 exec unshare --mount --propagation private "$0" "$rt" "${@:2}"
fi
. integration/checkpoint/world
# Root's containers have the same names in each of those that run side by side.
[ -z "${RT_OWN_STORE:-}" ] || { mkdir -p /run/rt && mount -t tmpfs -o mode=711 tmpfs /run/rt; } || exit 1
if [ $# -gt 1 ]; then
	for part in "${@:2}"; do . "integration/checkpoint/$part"; done
	done_testing
	exit
fi
# The rest goes on beside what follows, each as another user: most of these tests wait.
beside=()
for parts in "reach rights places left" unusual "removed shared" stuck; do
	number=${#beside[@]}
	env -u RT_CHECKPOINT_INSIDE RT_OWN_STORE=1 CHECKPOINT_UID=$((uid + number + 1)) "$0" "$rt" trap $parts >"$work/beside-$number" 2>&1 </dev/null &
	beside+=($!)
done
. integration/checkpoint/cases

# The caller's streams: pipes, and a terminal of its own.
pipes() { # each line that goes in comes out with the next number, before the checkpoint and after it
	local images=$work/images/pipes fifo=$work/home/fifo
	rm -f "$fifo"* && user mkfifo "$fifo" "$fifo.2"
	become sh -c 'exec "$@" <$HOME/fifo 2>$HOME/errors | cat >$HOME/output' - "$rt" run --init --name pipes "$work/init" -- cases answers &
	exec 5>"$fifo" && echo a >&5 && sleep 0.5
	user "$rt" checkpoint --image-path "$images" pipes || return 1
	exec 5>&-
	wait $!
	become sh -c 'exec "$@" <$HOME/fifo.2 2>>$HOME/errors | cat >>$HOME/output' - "$rt" restore -b "$work/init" --image-path "$images" pipes &
	exec 5>"$fifo.2" && echo b >&5 && exec 5>&-
	wait $!
	cat "$work/home/errors"
	tr '\n' , <"$work/home/output"
}
check streams/pipes 0 "^0 a,1 b,$" pipes

# What was /dev/null and is a pipe now stays /dev/null, as where containerd restores; a file does not become a pipe.
replaced() { # WHAT IT WAS
	local images=$work/images/replaced
	rm -f "$work/out/go" && : >"$work/home/file" && chown $uid "$work/home/file"
	become sh -c 'exec "$@" <$0 >$0 2>$0' "$1" "$rt" run --init --name replaced "$work/init" -- sh -c 'echo ready >/out/ready; until [ -e /out/go ]; do sleep 0.1; done; echo more; exit 7' &
	for _ in $(seq 200); do [ -e "$work/out/ready" ] && break; sleep 0.05; done
	user "$rt" checkpoint --image-path "$images" replaced || return 1
	wait $!
	user touch "$work/out/go"
	: | user "$rt" restore -b "$work/init" --image-path "$images" replaced 2>&1 | cat
	local status=${PIPESTATUS[1]}
	rm -rf "$images" "$work/out/ready"
	return $status
}
check streams/null 7 "" replaced /dev/null
check streams/file 1 "standard stream 0 was a file, and is none now" replaced "$work/home/file"

. integration/checkpoint/modes
. integration/checkpoint/ids
. integration/checkpoint/forks

# run --checkpoint: ended by signals, and called again until the program has come to its end.
grows() { # until the program, which was ended or is new, writes
	local lines
	lines=$(wc -l <"$work/home/output")
	for _ in $(seq 200); do
		[ "$(wc -l <"$work/home/output")" = "$lines" ] || return 0
		sleep 0.02
	done
}
anew() { # without an image and output of before
	rm -rf "$work/images/again"
	: >"$work/home/output" && chown $uid "$work/home/output"
}
counts() { # [FLAGS...] IMAGE: in the background, as $runs; from the image on where there is one. $job: in this job of Slurm
	become ${job:+SLURM_JOB_ID=$job} sh -c 'exec "$@" >>$HOME/output 2>$HOME/errors </dev/null' - "$rt" run --checkpoint "$work/images/again" "$@" -- cases count &
	runs=$!
}
again() { # SIGNAL...
	local status signal
	anew
	for signal in "$@" 0; do
		counts $flags "$image"
		grows && sleep 0.3
		[ $signal = 0 ] || kill -$signal $runs
		wait $runs
		status=$?
		[ $signal = 0 ] || [ $status = 75 ] || { echo "$signal: exit code $status"; cat "$work/home/errors"; return 1; }
	done
	[ -z "$(ls -A "$work/images/again")" ] || { echo "an image is left"; return 1; }
	seq 0 149 | cmp - "$work/home/output" && return $status
}
flags= image=$work/init
check again/signals 0 "" again USR1 TERM USR1
flags="--checkpoint-every 1"
check again/every 0 "" again
# As in a batch script: an image that is one file, with the profile hpc.
image_file
flags= image=$work/image.sqsh
check again/image-file 0 "" again USR1 USR1
flags=--no-new-keyring
check again/own-keys 0 "" again USR1
flags= image=$work/init
of_another() { # a file that another user has opened
	anew
	counts "$work/init"
	grows && sleep 0.3 && kill -USR1 $runs
	wait $runs
	(umask 077 && : >"$work/output") && user "$rt" run --checkpoint "$work/images/again" "$work/init" -- cases count >>"$work/output"
	local status=$?
	[ -e "$work/images/again/last" ] || { echo "the image is gone"; return 99; }
	return $status
}
check again/output-of-another 1 "^rt: standard stream 1 is a file that this user may not open" of_another
requeued() { # SIGNAL [TIME [CODES]]: what Slurm was asked; when it preempts the job, and the RequeueExit of its configuration
	mkdir -p "$work/home/bin"
	printf '#!/bin/sh\n[ "$2" != show ] || exec cat "$HOME/$3"\necho "$@" >>"$HOME/asked"\n' >"$work/home/bin/scontrol"
	echo "JobId=281 Partition=low PreemptTime=${2:-None}" >"$work/home/job"
	echo "PartitionName=low PreemptMode=REQUEUE" >"$work/home/partition"
	echo "RequeueExit             = ${3:-(null)}" >"$work/home/config"
	chmod 755 "$work/home/bin/scontrol"
	rm -f "$work/home/asked"
	anew
	job=281 counts "$image"
	grows && sleep 0.3 && kill -$1 $runs
	wait $runs
	echo "exit code $?: asked $(cat "$work/home/asked" 2>/dev/null)"
	rm -rf "$work/images/again"
}
check again/requeue 0 "^exit code 75: asked requeue 281$" requeued USR1
check again/preempted 0 "^exit code 75: asked $" requeued USR1 2026-11-26T15:00:00 70-75
check again/preempted-alone 0 "^exit code 75: asked requeue 281$" requeued USR1 2026-11-26T15:00:00
check again/no-requeue 0 "^exit code 75: asked $" requeued TERM
interrupted_restores() { # TERM and USR1 at many moments of a restore: each is answered, and the last image is whole
	local signal n
	anew
	for n in 0 1 2 3 4 6 8 10 12 15 20; do
		signal=USR1
		[ $((n % 2)) = 0 ] || signal=TERM
		counts "$work/init"
		case $n in
		0) grows && sleep 0.3 ;;
		*) # from where it has found the image on
			for _ in $(seq 500); do grep -q '^SigBlk:.*[4-7c-f][2367abef][0-9a-f][0-9a-f]$' /proc/$runs/status && break; sleep 0.002; done
			sleep "0.$(printf %03d $((n * 10 - 10)))" ;;
		esac
		kill -$signal $runs
		wait $runs
		[ $? = 75 ] || { echo "point $n: not exit code 75"; cat "$work/home/errors"; return 1; }
	done
	counts "$work/init"
	wait $runs || return 1
	seq 0 149 | cmp - "$work/home/output" && nobody_left
}
check again/interrupted 0 "" interrupted_restores
continued() { # SIGNAL FLAGS...: one that comes when the restored program runs, and rt's init, which is held, has still to say so
	local signal=$1 n
	anew
	for n in 1 2 3; do
		counts "${@:2}" "$work/init"
		[ $n != 2 ] || slow_to_tell $runs
		[ $n = 3 ] || { grows && sleep 0.3 && kill -$signal $runs; }
		wait $runs
		[ $? = $((n < 3 ? 75 : 0)) ] || { echo "call $n: another exit code"; cat "$work/home/errors"; return 1; }
	done
	seq 0 149 | cmp - "$work/home/output" && nobody_left
}
slow_to_tell() { # PID: rt's init takes two seconds to return from letting the program go on
	local init=
	until init=$(pgrep -oP $1); do sleep 0.001; done
	strace -qq -o "$work/held" -p "$init" -e trace=kill,pidfd_send_signal -e inject=kill,pidfd_send_signal:delay_exit=2000000:when=1 &
}
check again/continued 0 "" continued USR1
check again/continued/term 0 "" continued TERM
check again/continued/first 0 "" continued USR1 --init=false --pid private
killed() { # after a periodic image: what was written since is written again, and nothing is missing
	anew
	counts --name killed --checkpoint-every 1 "$work/init"
	sleep 1.6 && kill -9 $runs && wait $runs
	user "$rt" delete --force killed
	counts "$work/init"
	wait $runs
	cat "$work/home/errors"
	sort -nu "$work/home/output" | cmp - <(seq 0 149)
}
check again/killed 0 "" killed
shared() { # by two runs: the second one is refused, and the image of the first one goes on
	local status
	anew
	counts "$work/init"
	grows && sleep 0.3
	user "$rt" run --checkpoint "$work/images/again" "$work/init" -- cases count </dev/null
	status=$?
	kill -USR1 $runs
	wait $runs
	[ $? = 75 ] || { echo "not exit code 75"; cat "$work/home/errors"; return 99; }
	counts "$work/init"
	wait $runs || return 99
	seq 0 149 | cmp - "$work/home/output" || return 99
	[ -z "$(ls -A "$work/images/again")" ] || { echo "an image is left"; return 99; }
	return $status
}
check again/shared 1 "^rt: --checkpoint .*/again: another run has its image there .name a directory for each run" shared
unlocked() { # a file system without locks
	anew
	user strace -qq -o /dev/null -P "$work/images/again/.lock" -e trace=fcntl -e inject=fcntl:error=ENOLCK \
		"$rt" run --checkpoint "$work/images/again" "$work/init" -- sh -c : </dev/null
	local status=$?
	[ -z "$(ls -A "$work/images/again")" ] && return $status
}
check again/unlocked 0 "^rt: --checkpoint .*/again cannot be locked .no locks available.: nothing keeps a second run from it" unlocked
other_words() { # the image says what the program is, and not the call
	anew
	counts "$work/init"
	grows && sleep 0.3 && kill -USR1 $runs
	wait $runs
	user sh -c 'exec "$@" >>$HOME/output 2>$HOME/errors </dev/null' - "$rt" run --checkpoint "$work/images/again" "$work/init" -- no-such-program
	local status=$?
	cat "$work/home/errors"
	[ $status = 0 ] || return $status
	seq 0 149 | cmp - "$work/home/output"
}
check again/other-words 0 "^$" other_words
grown() { # a file that is not appended to, when what wrote it has died: the next call says what to do, and goes on then
	local status= n was
	anew
	rm -f "$work"/out/*
	for n in 1 2 3; do
		become sh -c 'exec "$@" >/dev/null 2>$HOME/errors </dev/null' - "$rt" run --checkpoint "$work/images/again" --checkpoint-every 1 --name grown "$work/init" -- \
			sh -c 'exec 3>/out/plain; n=0; while [ $n != 30 ]; do echo $n >&3; n=$((n + 1)); sleep 0.1; done' &
		runs=$!
		if [ $n = 1 ]; then
			for _ in $(seq 200); do [ ! -e "$work/images/again/last" ] || break; sleep 0.02; done
			sleep 0.5
			kill -9 $runs
		fi
		wait $runs
		status=$?
		case $n in
		1) user "$rt" delete --force grown ;;
		2)
			[ $status = 1 ] && cat "$work/home/errors" || return 99
			was=$(sed -n 's/.*cut it back to \([0-9]*\) bytes.*/\1/p' "$work/home/errors")
			truncate -s "$was" "$work/out/plain"
			;;
		esac
	done
	seq 0 29 | cmp - "$work/out/plain" && return $status
}
check again/grown 0 "^rt: /out/plain has [0-9]+ bytes, and had [0-9]+ when the image was written .cut it back to" grown
check again/modes 0 "" test -z "$(find "$work/images" -mindepth 1 -not -path '*/memory-*' -perm /077)"

rm -rf "$work"/images/*

# What the container gets stands in the config, and no image says more.
with() { # COMMAND OF JQ...: a bundle like init with another config, in $work/home/other
	rm -rf "$work/home/other" && mkdir "$work/home/other" && ln -s "$work/init/rootfs" "$work/home/other/rootfs"
	python3 -c 'import json, sys; c = json.load(sys.stdin); exec(sys.argv[1]); json.dump(c, sys.stdout)' "$1" \
		<"$work/init/config.json" >"$work/home/other/config.json"
}
limits() { # PYTHON: dumped with the one config, not restored into another
	start init threads || return 9
	user "$rt" checkpoint --image-path "$work/images/limits" threads || return 9
	wait $runs
	with "$1"
	user sh -c '"$@" >>$HOME/output 2>$HOME/errors </dev/null' - "$rt" restore -b "$work/home/other" --image-path "$work/images/limits" threads
	local status=$?
	cat "$work/home/errors"
	rm -rf "$work/images/limits"
	! user "$rt" state threads 2>/dev/null || return 9
	! pgrep -u $uid cases || return 9
	return $status
}
check limits/capabilities 1 "restored process .*Cap.* more than the config gives" \
	limits 'c["process"]["capabilities"] = {k: ["CAP_KILL"] for k in ("bounding", "effective", "permitted")}'
check limits/filter 1 "has another seccomp filter than the config|has 0 seccomp filters, and the config gives 1" \
	limits 'c["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir"], "action": "SCMP_ACT_ERRNO"}]}'
# A filter of the config's is there before and after, with all else that limits the program.
filtered() { # WHO FLAGS...: what the program says of itself at the start and at the end, and what its filter refuses
	local who=$1 images=$work/images/filtered
	[ $who = user ] || images=$work/filtered
	shift
	with 'c["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]}'"$also"
	rm -f "$work"/out/*
	: >"$work/home/output" && chown $uid "$work/home/output"
	$who sh -c 'exec "$@" >>"$0" 2>&1 </dev/null' "$work/home/output" "$rt" run --name filtered "$@" "$work/home/other" -- sh -c '
		status() { cat /proc/$$/status | while read key value; do case $key in Seccomp*|NoNewPrivs*|Cap*) echo "$key $value" ;; esac; done; }
		status; echo ready; until [ -e /out/go ]; do sleep 0.1; done; status; busybox mkdir /tmp/x || echo refused' &
	for _ in $(seq 200); do grep -q ready "$work/home/output" && break; sleep 0.05; done
	$who "$rt" checkpoint --image-path "$images" filtered || { cat "$work/home/output"; $who "$rt" delete --force filtered; return 1; }
	wait $!
	user touch "$work/out/go"
	$who sh -c 'exec "$@" >>"$0" 2>&1 </dev/null' "$work/home/output" "$rt" restore -b "$work/home/other" --image-path "$images" filtered
	local status=$?
	cat "$work/home/output"
	rm -rf "$images"
	[ $status = 0 ] && [ "$(sed '/^ready/,$d' "$work/home/output")" = "$(sed '1,/^ready/d; /x/,$d' "$work/home/output")" ] &&
		[ "$(sed -n 's/^Seccomp_filters: //p' "$work/home/output" | head -1)" = 1 ]
}
also=
check filter/init 0 "^refused" filtered user --init
check filter/first 0 "^refused" filtered user
also='; [c["linux"].pop(key, 0) for key in ("uidMappings", "gidMappings")]'
also+='; c["linux"]["namespaces"] = [n for n in c["linux"]["namespaces"] if n["type"] != "user"]'
check filter/root 0 "^refused" filtered root
check limits/memory 1 "restore /tmp: the config mounts no file system in memory there" \
	limits 'c["mounts"] = [m for m in c["mounts"] if m["destination"] != "/tmp"]'

. integration/checkpoint/busy

for shape in init hpc first; do
	check "$shape/filter" 1 "^rt: process [0-9]* .cases. has a seccomp filter" refused $shape filter
	check "$shape/memfd" 1 "descriptor 3 is /memfd:parts .*a part is mapped.*close it" refused $shape memfd-in-parts
	check "$shape/shared-rest" 1 "^rt: process [0-9]* .cases. has a part of some shared memory" refused $shape shared-rest
	check "$shape/timer" 1 "descriptor 3 is a periodic timer" refused $shape unread-tick
	check "$shape/removed-part" 1 "has /dev/shm/removed .deleted. in its memory.* and not its first part" refused $shape removed-part
	check "$shape/system-v" 1 "System V shared memory" refused $shape system-v
	check "$shape/connection" 1 "descriptor [0-9]* is a TCP connection on the host" refused $shape connection
	check "$shape/stopped" 1 "is stopped" refused $shape stopped
	check "$shape/io_uring" 1 "of kind io_uring" refused $shape uring
done
connected() { # SHAPE: to a server outside
	rm -f "$work/home/server"
	become python3 -c 'import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(9); c = s.accept(); time.sleep(100)' \
		"$work/home/server" &
	server=$!
	for _ in $(seq 200); do [ -S "$work/home/server" ] && break; sleep 0.02; done
	sleep 0.2
	refused "$1" outside -v "$work/home:/server"
	local status=$?
	kill $server
	server=
	return $status
}
for shape in init hpc; do
	check "$shape/outside" 1 "descriptor 3 is a connection to a program outside" connected $shape
done
# A first process is restored behind its own /proc.
for case in proc-cwd proc-file; do
	check first/$case 0 "" goes_on first $case
	rm -rf "$work/images/$case"
done
for shape in init first; do
	check $shape/pinned 0 "" goes_on $shape pinned
	rm -rf "$work/images/pinned"
done
for shape in init first; do
	check $shape/proc-passed 1 "a descriptor is on its way through a socket.*have it received before" refused $shape proc-passed
done
check init/other 1 "is none of the program's .rt exec has started it" refused init other
check init/named-socket 1 "/out/link/socket: its name leads through a link.*bind its socket by a path without links" refused init named-socket
check init/first-thread-ended 1 "has threads, but its first one has ended" refused init first-thread-ended
check init/thread-apart 1 "has a thread with descriptors or directories of its own" refused init thread-apart
check init/semaphore 1 "has a System V object ./proc/sysvipc/sem." refused init semaphore
check init/queue 1 "a POSIX message queue" refused init queue

# kill -9 of rt at $KILLS points of a dump, and of rt or criu at so many of a restore: the program runs on, the last image is whole,
# and no process is left. A criu that is killed while code of its own is in the program's memory leaves that program damaged.
victim() { # WHO RT: the process to kill; rt where there is no criu
	[ "$1" = rt ] || pgrep -u $uid -f images-dir | head -1 | grep . || echo "$2"
	[ "$1" != rt ] || echo "$2"
}
interrupted() { # WHO MILLISECONDS COMMAND...
	local who=$1 delay=$2 runtime
	shift 2
	become "$@" >>"$work/home/output" 2>&1 </dev/null &
	runtime=$!
	sleep "$(printf '%d.%03d' $((delay / 1000)) $((delay % 1000)))"
	kill -9 "$(victim $who $runtime)" 2>/dev/null
	timeout 5 tail --pid=$runtime -f /dev/null || kill -9 $runtime
	wait $runtime
}
milliseconds() { local start=${EPOCHREALTIME/./}; "$@" >/dev/null 2>&1; echo $(((${EPOCHREALTIME/./} - start) / 1000)); }
KILLS=${KILLS:-4}
kills() { # WHO SHAPE
	local who=$1 shape=$2 image=$work/images/tree took n flags=()
	start $shape tree || return 1
	local dump=("$rt" checkpoint --leave-running --image-path "$image" tree)
	user "${dump[@]}" || return 1
	took=$(milliseconds user "${dump[@]}")
	for n in $([ $who = criu ] || seq $KILLS); do
		interrupted $who $((took * n / KILLS)) "${dump[@]}"
		# What a dump has left goes on by itself to its end.
		for _ in $(seq 200); do pgrep -u $uid -f images-dir >/dev/null || break; sleep 0.05; done
		[ "$(user "$rt" state tree | sed -n 's/.*"status": "\(.*\)".*/\1/p')" != paused ] || user "$rt" resume tree || return 1
		[ -e "$image/rt.json" ] || { echo "point $n: no image"; return 1; }
	done
	user "${dump[@]}" || return 1
	[ "$(ls -A "$work/images")" = tree ] || { ls -A "$work/images"; return 1; }
	user touch "$work/out/go"
	wait $runs || { echo "the program ended with $?"; cat "$work/home/output"; return 1; }
	rm "$work/out/go"
	nobody_left || return 1
	local restore=("$rt" restore -b "$work/init" --image-path "$image" tree)
	for n in $(seq $KILLS); do
		interrupted $who $((took * n / KILLS)) "${restore[@]}"
		user "$rt" delete --force tree
		nobody_left || { echo "point $n of restore"; return 1; }
	done
	user touch "$work/out/go"
	: >"$work/home/output"
	user sh -c '"$@" >>$HOME/output 2>&1 </dev/null' - "${restore[@]}" || { cat "$work/home/output"; return 1; }
	nobody_left && rm -rf "$image"
}
for shape in init first; do
	for who in rt criu; do
		check kill/$who/$shape 0 "" kills $who $shape
	done
done

for part in full hostile; do . integration/checkpoint/$part; done
wait "${beside[@]}"
for number in "${!beside[@]}"; do include "beside-$number" cat "$work/beside-$number"; done

# podman and containerd, as root.
integration/packages podman conmon containerd runc iproute2
integration/clients/image "$work/image.tar"
include clients integration/clients/world machine "$rt" "$PWD/integration/checkpoint/clients" "$criu" "$work/image.tar"
done_testing
