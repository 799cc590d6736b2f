# containerd on rt, by ctr: sourced by `suite`. Plain users run the daemon in a user namespace with one id.

ctr() { inside ctr --address /run/containerd/containerd.sock "$@"; }
ctr_run() { ctr run --rm --runc-binary /usr/local/bin/rt "$@"; }
image=localhost/busybox:latest

# inside COMMAND...: where the daemon is
inside() {
	if [ "$user" = root ]; then as root "$@"; else as "$user" nsenter --preserve-credentials -U -m -t "$daemon" "$@"; fi
}

containerd_suite() {
	home=$w/home/$user
	mkdir -p /run/containerd
	limit=600 containerd_daemon >$w/containerd.log 2>&1 &
	if ! eventually test -s $w/daemon.pid || ! daemon=$(cat $w/daemon.pid) || ! eventually ctr version; then
		check daemon 0 "" tail $w/containerd.log
		failed=$((failed + 1))
		return
	fi
	check import 0 "busybox" ctr images import $w/image.tar
	containerd_run
	containerd_exec
	containerd_namespaces
	containerd_signals
	check nothing-left/ctr 0 "^0\$" eval 'ctr containers ls -q | wc -l'
	check nothing-left/rt 0 "^\$" inside rt --root /run/containerd/runc/default list -q
	kill "$daemon"
}

containerd_daemon() {
	local script='echo $$ >'$w/daemon.pid'; exec containerd "$@"'
	if [ "$user" = root ]; then
		as root sh -c "$script" containerd --log-level warn
	else
		: >$w/daemon.pid
		chmod 666 $w/daemon.pid
		script="mount -t tmpfs -o mode=711 tmpfs /run/containerd; $script"
		# No cgroups and no CRI without root.
		printf '%s\n' 'version = 2' 'disabled_plugins = ["io.containerd.grpc.v1.cri"]' >"$home/containerd.toml"
		as "$user" unshare --user --map-root-user --mount sh -c "$script" containerd --config "$home/containerd.toml" \
			--root "$home/containerd" --state /run/containerd --address /run/containerd/containerd.sock --log-level warn
	fi
}

containerd_run() {
	check run 0 "^hello\$" ctr_run $image r1 echo hello
	check run/exit-code 7 "" ctr_run $image r2 sh -c 'exit 7'
	check run/not-found 1 "executable file not found" ctr_run $image r3 nosuch
	check run/not-executable 1 "permission denied" ctr_run $image r4 /bin/not-executable
	check run/tty 0 "/dev/(pts/0|console)" containerd_tty
	check run/devpts 0 "devpts on /dev/pts type devpts" ctr_run $image r6 mount
	check run/env 0 "^A=b" ctr_run --env A=b $image r7 env
	check run/cwd 0 "^/var" ctr_run --cwd /var $image r8 pwd
	check run/read-only 1 "Read-only" ctr_run --read-only $image r9 touch /x
	check run/mount 0 "^of the image" ctr_run --mount "type=bind,src=$w/image.d,dst=/m,options=rbind:ro" $image r10 cat /m/file
	check run/net-host 0 "^ok" ctr_run --net-host $image r11 echo ok
	check run/privileged 0 "^CapBnd" ctr_run --privileged $image r12 grep CapBnd /proc/self/status
	check run/seccomp 0 "^Seccomp:.2" ctr_run --seccomp $image r13 grep Seccomp: /proc/self/status
	check run/memory-limit 0 "^ok" ctr_run --memory-limit 100000000 $image r14 echo ok
	check run/cgroup 0 "^ok" ctr_run --cgroup /some/where $image r15 echo ok
	check run/caps 0 "^CapEff:.0000000000003000|^CapEff:" ctr_run --cap-add CAP_NET_ADMIN $image r16 grep CapEff /proc/self/status
	check run/no-new-privileges 0 "^NoNewPrivs:.1" ctr_run $image r17 grep NoNewPrivs /proc/self/status
	check run/stdin 0 "^through" containerd_stdin
}

containerd_tty() {
	local words
	printf -v words '%q ' ctr --address /run/containerd/containerd.sock run --rm -t --runc-binary /usr/local/bin/rt $image r5 tty
	inside script -qec "stty rows 21 cols 77; $words" /dev/null
}
# (ctr does not pass the end of its stdin on)
containerd_stdin() { echo through | ctr_run $image r18 head -n 1; }

containerd_exec() {
	ctr run -d --runc-binary /usr/local/bin/rt --pid-file "$home/ctr.pid" $image e sleep 1000
	check exec/pid-file 0 "" eventually eval 'grep sleep /proc/$(cat $home/ctr.pid)/comm'
	check exec 0 "^hello" ctr task exec --exec-id x1 e echo hello
	check exec/exit-code 9 "" ctr task exec --exec-id x2 e sh -c 'exit 9'
	check exec/not-found 1 "executable file not found" ctr task exec --exec-id x3 e nosuch
	check exec/tty 0 "/dev/pts/[0-9]" inside script -qec "ctr --address /run/containerd/containerd.sock task exec -t --exec-id x4 e tty" /dev/null
	check exec/detached 0 "" ctr task exec -d --exec-id x5 e sh -c 'echo x >/tmp/x; sleep 100'
	check exec/detached-ran 0 "" eventually ctr task exec --exec-id x6 e test -e /tmp/x
	check exec/cwd 0 "^/var" ctr task exec --cwd /var --exec-id x7 e pwd
	check exec/many 0 "^12\$" eval 'for i in 1 2 3 4; do (for j in 1 2 3; do ctr task exec --exec-id m$i$j e echo x; done) & done | grep -c x'
	check task/ls 0 "^e +[0-9]+ +RUNNING" ctr task ls
	check task/ps 0 "^[0-9]+ " ctr task ps e
	check task/pause 0 "" ctr task pause e
	check task/paused 0 "^e +[0-9]+ +PAUSED" ctr task ls
	check task/resume 0 "" ctr task resume e
	check task/resumed 0 "^e +[0-9]+ +RUNNING" ctr task ls
	check task/kill 0 "" ctr task kill -s KILL e
	check task/stopped 0 "^e +[0-9]+ +STOPPED" containerd_eventually STOPPED e
	check task/kill-stopped 1 "process already finished|not found" ctr task kill e
	check task/rm 0 "" ctr task rm e
	check containers/rm 0 "" ctr containers rm e
}

# containerd_eventually STATUS ID: the line of the task that has it at last
containerd_eventually() { eventually eval "ctr task ls | grep -E '^$2 .*$1'" && ctr task ls | grep "^$2 "; }

# Without a cgroup to ask: kill -a and rm -f reach every process, in a PID namespace of its own or not.
containerd_signals() {
	local id
	containerd_config pid
	for id in own shared; do
		containerd_deaf $id
		check $id/started 0 "" eventually eval '[ "$(pgrep -fxc "sleep 5432")" = 2 ]'
		check $id/ps 0 "^3\$" eval "ctr task ps $id | grep -c '^[0-9]'"
		check $id/kill-all 0 "" ctr task kill -a -s KILL $id
		check $id/stopped 0 STOPPED containerd_eventually STOPPED $id
		check $id/gone 0 "" gone pgrep -fx "sleep 5432"
		check $id/delete 0 "" ctr task rm $id
		ctr containers rm $id
		containerd_deaf $id
		eventually eval '[ "$(pgrep -fxc "sleep 5432")" = 2 ]'
		check $id/rm-force 0 "" ctr task rm -f $id
		check $id/rm-force-gone 0 "" gone pgrep -fx "sleep 5432"
		ctr containers rm $id
	done
}

# containerd_deaf own|shared: a container of three processes that do not mind SIGTERM
containerd_deaf() {
	local flags=(--config "$home/config.json" $1)
	[ "$1" = shared ] || flags=($image "$1" sh -c 'trap "" TERM; sleep 5432 & sleep 5432 & wait')
	ctr run -d --runc-binary /usr/local/bin/rt "${flags[@]}"
}

# containerd_config TYPE: a config as ctr makes it, without the namespace TYPE, for a command to be chosen
containerd_config() {
	ctr oci spec >"$home/spec.json"
	python3 - "$home/spec.json" "$1" "$w/image.d/rootfs" >"$home/config.json" <<-'PYTHON'
		import json, sys
		config = json.load(open(sys.argv[1]))
		config["linux"]["namespaces"] = [n for n in config["linux"]["namespaces"] if n["type"] != sys.argv[2]]
		config["root"] = {"path": sys.argv[3]}
		config["process"]["args"] = ["sh", "-c", 'trap "" TERM; sleep 5432 & sleep 5432 & wait']
		config["process"]["env"] = ["PATH=/bin"]
		if sys.argv[2] != "pid":
		    config["process"]["args"] = ["sh", "-c", "mount; ls -d /proc/1 /sys/class /dev/mqueue"]
		json.dump(config, sys.stdout)
	PYTHON
}

containerd_namespaces() {
	containerd_config network
	check net/host-sysfs 0 "on /sys type sysfs" ctr_run --config "$home/config.json" n1
	containerd_config ipc
	check ipc/host-mqueue 0 "^/dev/mqueue" ctr_run --config "$home/config.json" n2
	containerd_config cgroup
	check cgroup/host 0 "^/sys/class" ctr_run --config "$home/config.json" n3
	containerd_config uts
	check uts/host 0 "on /proc type proc" ctr_run --config "$home/config.json" n4
}
