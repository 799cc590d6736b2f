# containerd on rt, by ctr: sourced by `suite`. Plain users run the daemon in a user namespace with one id.

ctr() { inside ctr --address /run/containerd/containerd.sock "$@"; }
ctr_run() { ctr run --rm --runc-binary /usr/local/bin/rt "$@"; }
image=localhost/busybox:latest

# inside COMMAND...: where the daemon is
inside() {
	if [ "$user" = root ]; then as root "$@"; else as "$user" nsenter --preserve-credentials -U -m -t "$daemon" "$@"; fi
}

containerd_suite() {
	loses_output=yes
	home=$w/home/$user
	mkdir -p /run/containerd
	install -m 755 cri $w/bin/cri
	# What makes a pod's sandbox is an image, too, whose program sleeps.
	printf '%s\n' '[plugins."io.containerd.grpc.v1.cri"]' 'sandbox_image = "localhost/pause:latest"' \
		'disable_cgroup = true' 'restrict_oom_score_adj = true' >>/etc/containerd/config.toml
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
	containerd_cri
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
		cp /etc/containerd/config.toml "$home/containerd.toml"
		chmod 644 "$home/containerd.toml"
		as "$user" unshare --user --map-root-user --mount sh -c "$script" containerd --config "$home/containerd.toml" \
			--root "$home/containerd" --state /run/containerd --address /run/containerd/containerd.sock --log-level warn
	fi
}

containerd_run() {
	check run 0 "^hello\$" ctr_run $image r1 echo hello
	check run/exit-code 7 "" ctr_run $image r2 sh -c 'exit 7'
	check run/not-found 1 "executable file not found" ctr_run $image r3 nosuch
	check run/not-executable 1 "permission denied" ctr_run $image r4 /bin/not-executable
	check run/tty 0 "/dev/(pts/0|console)" containerd_tty run --rm -t --runc-binary /usr/local/bin/rt $image r5
	check run/devpts 0 "devpts on /dev/pts type devpts" ctr_run $image r6 mount
	check run/env 0 "^A=b" ctr_run --env A=b $image r7 env
	check run/cwd 0 "^/var" ctr_run --cwd /var $image r8 pwd
	check run/read-only 1 "Read-only" ctr_run --read-only $image r9 touch /x
	check run/mount 0 "^of the image" ctr_run --mount "type=bind,src=$w/image.d,dst=/m,options=rbind:ro" $image r10 cat /m/file
	check run/net-host 0 "^net:\[[0-9]+\].?\$" containerd_in net --net-host $image r11
	# all that there are: root's are those of this machine's root
	local all
	printf -v all '%016x' $(((1 << ($(cat /proc/sys/kernel/cap_last_cap) + 1)) - 1))
	[ "$user" != root ] || all=$(awk '/CapBnd/ { print $2 }' /proc/self/status)
	check run/privileged 0 "^CapEff:.$all.?\$" ctr_run --privileged $image r12 grep CapEff /proc/self/status
	check run/seccomp 0 "^Seccomp:.2" ctr_run --seccomp $image r13 grep Seccomp: /proc/self/status
	check run/memory-limit 0 "^ok" ctr_run --memory-limit 100000000 $image r14 echo ok
	check run/cgroup 0 "^ok" ctr_run --cgroup /some/where $image r15 echo ok
	# ctr's own set, and net_admin
	check run/caps 0 "^CapEff:.00000000a80435fb.?\$" ctr_run --cap-add CAP_NET_ADMIN $image r16 grep CapEff /proc/self/status
	check run/no-new-privileges 0 "^NoNewPrivs:.1" ctr_run $image r17 grep NoNewPrivs /proc/self/status
	check run/stdin 0 "^through" containerd_stdin
}

# containerd_in FILE FLAGS...: the namespace that a container with FLAGS has, where it is that of the daemon
containerd_in() {
	local inside outside
	inside=$(ctr_run "${@:2}" readlink "/proc/self/ns/$1" | tr -d '\r') || return
	outside=$(inside readlink "/proc/self/ns/$1")
	[ "$inside" = "$outside" ] && echo "$inside" || echo "$inside is not $outside"
}

# containerd_tty WORDS...: ctr WORDS tty, on a terminal. ctr sets its size a moment after the start, and loses what a
# program prints that has ended by then.
containerd_tty() {
	local words
	printf -v words '%q ' ctr --address /run/containerd/containerd.sock "$@" \
		sh -c 'until [ "$(stty size)" = "21 77" ]; do sleep 0.1; done; tty'
	inside script -qec "stty rows 21 cols 77; $words" /dev/null
}
# (ctr does not pass the end of its stdin on)
containerd_stdin() { echo through | ctr_run $image r18 head -n 1; }

containerd_exec() {
	ctr run -d --runc-binary /usr/local/bin/rt --pid-file "$home/ctr.pid" $image e sleep 1000
	check exec/pid-file 0 "" eventually eval 'grep sleep /proc/$(cat $home/ctr.pid)/comm'
	check exec 0 "^hello" ctr task exec --exec-id x1 e sh -c 'echo hello; sleep 0.3' # as for exec/many
	check exec/exit-code 9 "" ctr task exec --exec-id x2 e sh -c 'exit 9'
	check exec/not-found 1 "executable file not found" ctr task exec --exec-id x3 e nosuch
	check exec/tty 0 "/dev/pts/[0-9]" containerd_tty task exec -t --exec-id x4 e
	check exec/detached 0 "" ctr task exec -d --exec-id x5 e sh -c 'echo x >/tmp/x; sleep 100'
	check exec/detached-ran 0 "" eventually ctr task exec --exec-id x6 e test -e /tmp/x
	check exec/cwd 0 "^/var" ctr task exec --cwd /var --exec-id x7 e sh -c 'pwd; sleep 0.3'
	check exec/many 0 "^12\$" containerd_exec_many
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

# Counted by what they do: ctr loses the output of a program that ends before its daemon looks.
containerd_exec_many() {
	local i j
	for i in 1 2 3 4; do (for j in 1 2 3; do ctr task exec --exec-id m$i$j e touch /tmp/many-$i-$j; done) & done
	eventually eval '[ "$(find /proc/$(cat "$home/ctr.pid")/root/tmp -name "many-*" | wc -l)" = 12 ]'
	find "/proc/$(cat "$home/ctr.pid")/root/tmp" -name 'many-*' | wc -l
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
		    # ctr loses the end of what a program prints that ends before its daemon looks.
		    config["process"]["args"] = ["sh", "-c", "mount; readlink /proc/self/ns/" + sys.argv[2].replace("network", "net") + "; sleep 0.3"]
		json.dump(config, sys.stdout)
	PYTHON
}

containerd_namespaces() {
	local kind file
	for kind in network ipc cgroup uts; do
		file=${kind/network/net}
		containerd_config $kind
		check $kind/host 0 "^$(inside readlink /proc/self/ns/$file | sed 's/[][]/\\&/g').?\$" \
			ctr_run --config "$home/config.json" n-$kind
	done
	containerd_config network
	check network/host-sysfs 0 "on /sys type sysfs" ctr_run --config "$home/config.json" n1
	containerd_config ipc
	check ipc/host-mqueue 0 "on /dev/mqueue type mqueue" ctr_run --config "$home/config.json" n2
}

cri() { inside cri /run/containerd/containerd.sock "$@"; }

# containerd's CRI plugin, as a kubelet would call it, with pods on the node's network.
containerd_cri() {
	local pod id
	check cri/import 0 "busybox" ctr -n k8s.io images import $w/image.tar
	check cri/import-pause 0 "pause" ctr -n k8s.io images import "$(containerd_pause)"
	check cri/ready 0 "cri +.* ok" containerd_cri_ready
	check cri/pod 0 "^[0-9a-f]{64}\$" cri pod first
	pod=$(ctr -n k8s.io containers ls -q)
	check cri/create 0 "^[0-9a-f]{64}\$" cri create "$pod" web -m $w/image.d:/m -c sh -c 'trap "exit 3" TERM; sleep 1000 & wait'
	id=$(ctr -n k8s.io containers ls -q | grep -v "$pod")
	check cri/created 0 "^created" cri status "$id"
	check cri/start 0 "" cri start "$id"
	check cri/running 0 "^running" cri status "$id"
	check cri/runtime 0 "^$id\$" inside rt --root /run/containerd/runc/k8s.io list -q
	check cri/exec 0 "^of the image\$" cri exec "$id" cat /m/file
	check cri/exec-code 9 "" cri exec "$id" sh -c 'exit 9'
	check cri/exec-not-found 1 "executable file not found" cri exec "$id" nosuch
	check cri/read-only-mount 1 "Read-only" cri exec "$id" touch /m/x
	check cri/seccomp 0 "^Seccomp:" cri exec "$id" grep Seccomp: /proc/self/status
	check cri/limit 1 "resources are not applied" cri limit "$id" 200000000
	check cri/stop 0 "" cri stop "$id"
	check cri/exited 0 "^exited" cri status "$id"
	check cri/remove 0 "" cri remove "$id"
	check cri/not-found 1 "executable file not found" containerd_cri_missing "$pod"
	check cri/stop-pod 0 "" cri stop-pod "$pod"
	check cri/remove-pod 0 "" cri remove-pod "$pod"
	check cri/nothing-left 0 "^\$" inside rt --root /run/containerd/runc/k8s.io list -q
}

# The plugin is there a moment after the daemon, and the image when it has seen the import.
containerd_cri_ready() {
	eventually eval 'cri image localhost/pause:latest && cri image localhost/busybox:latest'
	ctr plugins ls | grep cri
}

# The image of the tests with another program; prints its path.
containerd_pause() {
	python3 - $w/image.tar <<-'PYTHON'
		import io, json, sys, tarfile
		path = sys.argv[1].replace("image.tar", "pause.tar")
		with tarfile.open(sys.argv[1]) as old, tarfile.open(path, "w") as new:
		    for member in old:
		        data = old.extractfile(member).read()
		        if member.name == "config.json":
		            config = json.loads(data)
		            config["config"]["Cmd"] = ["/bin/sleep", "100000"]
		            data = json.dumps(config).encode()
		        if member.name == "manifest.json":
		            data = data.replace(b"localhost/busybox", b"localhost/pause")
		        member.size = len(data)
		        new.addfile(member, io.BytesIO(data))
		print(path)
	PYTHON
}

containerd_cri_missing() {
	local id
	id=$(cri create "$1" missing -c nosuch) && cri start "$id"
}
