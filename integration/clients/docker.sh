# docker on rt: sourced by `suite`. User "one" runs the daemon in a user namespace with one id, "many" by rootlesskit.

image=localhost/busybox
d() { inside docker -H "unix://$socket" "$@"; }
run() { d run --rm --runtime rt "$@"; }

# inside COMMAND...: where the daemon is
inside() {
	if [ "$user" = root ]; then as root "$@"; else as "$user" nsenter --preserve-credentials -U -m -n -t "$daemon" "$@"; fi
}

docker_suite() {
	loses_output=yes
	home=$w/home/$user
	socket=/run/docker.sock
	[ "$user" = root ] || socket=/run/user/$(id -u "$user")/docker.sock
	pid_file=$w/daemon.pid
	[ "$layout" != trixie ] || docker_cdi
	[ "$user" != many ] || pid_file=/run/user/$(id -u many)/rootlesskit/child_pid
	limit=900 docker_daemon >$w/docker.log 2>&1 &
	if ! eventually test -s "$pid_file" || ! daemon=$(cat "$pid_file") || ! docker_up; then
		check daemon 1 "^\$" tail -30 $w/docker.log
		return
	fi
	check load 0 "localhost/busybox" d load -qi $w/image.tar
	check runtime 0 "rt" d info -f '{{range $name, $_ := .Runtimes}}{{$name}} {{end}}'
	docker_run
	docker_flags
	docker_life
	[ "$layout" != trixie ] || docker_13
	check nothing-left/docker 0 "^\$" d ps -aq
	check nothing-left/rt 0 "^\$" inside rt --root "$(docker_root)" list -q
	kill "$daemon"
}

docker_up() { limit=60 eventually d version || eventually d version; }
docker_root() { if [ "$user" = root ]; then echo /run/docker/runtime-rt/moby; else echo "/run/user/$(id -u "$user")/docker/runtime-rt/moby"; fi; }

docker_daemon() {
	local script='echo $$ >'$w/daemon.pid'; exec dockerd "$@"' run
	if [ "$user" = root ]; then
		as root sh -c "$script" dockerd -H unix:///run/docker.sock
		return
	fi
	run=/run/user/$(id -u "$user")
	if [ "$user" = many ]; then
		# As docker's own page for users says.
		mkdir -p "$home/.config/docker"
		cp "$w/etc/docker/daemon.json" "$home/.config/docker/"
		chown -R "$(id -u many):$(id -g many)" "$home/.config/docker"
		extra_env="DOCKERD_ROOTLESS_ROOTLESSKIT_FLAGS=--state-dir=$run/rootlesskit" \
			as many /usr/share/docker.io/contrib/dockerd-rootless.sh
		return
	fi
	: >$w/daemon.pid
	chmod 666 $w/daemon.pid
	mkdir -p /run/containerd /run/docker
	# What rootlesskit would have prepared, with one id instead of a range.
	script="mount -t tmpfs tmpfs /run/containerd; mount -t tmpfs tmpfs /run/docker
		ip link set lo up; $script"
	cp "$w/etc/docker/daemon.json" "$home/daemon.json"
	chmod 644 "$home/daemon.json"
	extra_env="ROOTLESSKIT_STATE_DIR=$run/rootlesskit" as "$user" unshare --user --map-root-user --mount --net \
		sh -c "$script" dockerd --rootless --config-file "$home/daemon.json" -H "unix://$run/docker.sock" \
		--data-root "$home/docker" --exec-root "$run/docker" --group root --pidfile "$run/docker.pid" \
		--bridge none --iptables=false --storage-driver overlay2
}

docker_run() {
	check run 0 "^hello\$" run $image echo hello
	check run/exit-code 7 "" run $image sh -c 'exit 7'
	check run/not-in-path 127 "executable file not found" run $image nosuch
	check run/no-such-file 127 "no such file or directory" run $image /no/such
	check run/not-executable 126 "permission denied" run $image /bin/not-executable
	check run/directory 126 "permission denied|is a directory" run $image /tmp
	check run/tty 0 "/dev/(pts/0|console)" docker_tty run --rm -it --runtime rt $image tty
	stdin=$w/image.d/file check run/stdin 0 "^of the image\$" run -i $image cat
	check run/init 0 "^(docker-init|tini)\$" run --init $image cat /proc/1/comm
	check run/read-only 1 "Read-only" run --read-only $image touch /x
	check run/tmpfs 0 "tmpfs on /t type tmpfs" run --tmpfs /t:size=1m $image mount
	check run/volume 0 "^of the image\$" run -v $w/image.d:/m:ro $image cat /m/file
	check run/volume-missing-point 0 "^of the image\$" run -v $w/image.d/file:/a/b/c $image cat /a/b/c
	check run/named-volume 0 "^of the image\$" run -v vol:/var/data $image cat /var/data/file
	check run/hostname 0 "^named\$" run --hostname named $image hostname
	check run/workdir 0 "^/made/here\$" run --workdir /made/here $image pwd
	check run/env 0 "^A=b\$" run --env A=b $image env
	check run/devpts 0 "devpts on /dev/pts type devpts" run $image mount
	check run/shm 0 "size=1024k" run --shm-size 1m $image sh -c 'mount | grep /dev/shm'
	if [ "$user" != one ]; then
		# the bridge: libnetwork's hook gives the container its device
		check run/network 0 "eth0" run $image ip -o link
		check run/network-address 0 "inet 172" run $image ip -o addr show eth0
	fi
	check run/network-none 0 "^1\$" run --network none $image sh -c 'ip -o link | wc -l'
	check run/network-host 0 "^net:\[[0-9]+\]\$" docker_in net --network host
}

# same SECOND FIRST WORD: prints the word where they are equal. Where docker has lost one of them nothing is printed, and `check` asks once more.
same() {
	if [ -z "$1" ] || [ -z "$2" ]; then return 0; fi
	if [ "$1" = "$2" ]; then echo "$3"; else echo "$1 is not $2"; fi
}

# docker_in FILE FLAGS...: the namespace that a container with FLAGS has, where it is that of the daemon
docker_in() {
	local inside outside
	inside=$(run "${@:2}" $image readlink "/proc/self/ns/$1") || return
	outside=$(inside readlink "/proc/self/ns/$1")
	same "$inside" "$outside" "$inside"
}

docker_tty() {
	local words
	printf -v words '%q ' docker -H "unix://$socket" "$@"
	inside script -qec "stty rows 21 cols 77; $words" /dev/null
}

docker_flags() {
	check flags/caps-none 0 "^CapEff:.0{16}\$" run --cap-drop all $image grep CapEff /proc/self/status
	check flags/caps-one 0 "^CapBnd:.0{12}1000\$" run --cap-drop all --cap-add net_admin $image grep CapBnd /proc/self/status
	check flags/seccomp 0 "^Seccomp:.2\$" run $image grep Seccomp: /proc/self/status
	# Without CAP_MKNOD, for which rt has a filter of its own.
	check flags/unconfined 0 "^Seccomp:.0\$" run --cap-drop MKNOD --security-opt seccomp=unconfined $image grep Seccomp: /proc/self/status
	check flags/no-new-privileges 0 "^NoNewPrivs:.1\$" run --security-opt no-new-privileges $image grep NoNewPrivs /proc/self/status
	# all that docker knows: in Debian 12's up to audit_read; root's are those of this machine's root
	local known=3fffffffff machine
	[ "$layout" != trixie ] || known=1ffffffffff
	machine=$known
	[ "$user" != root ] || machine=$(awk '/CapBnd/ { print $2 }' /proc/self/status)
	printf -v all '%016x' $((0x$known & 0x$machine))
	check flags/privileged 0 "^CapEff:.$all\$" run --privileged $image grep CapEff /proc/self/status
	check flags/device 0 "^c.* /dev/tun2\$" run --device /dev/net/tun:/dev/tun2 $image ls -l /dev/tun2
	check flags/ulimit 0 "^100 200\$" run --ulimit nofile=100:200 $image sh -c 'echo $(ulimit -Sn) $(ulimit -Hn)'
	check flags/pid-host 0 "dockerd" run --pid host $image ps -o args
	check flags/ipc-host 0 "^ipc:\[[0-9]+\]\$" docker_in ipc --ipc host
	check flags/ipc-host-mqueue 0 "on /dev/mqueue type mqueue" run --ipc host $image mount
	check flags/uts-host 0 "^uts:\[[0-9]+\]\$" docker_in uts --uts host
	check flags/group-add 0 "^uid=0" run --group-add extra $image id
	check flags/memory 0 "^ok\$" run --memory 100m $image echo ok
	check flags/cgroup-parent 0 "^ok\$" run --cgroup-parent /some/where $image echo ok
	check flags/sysctl 0 "^4096\$" run --sysctl kernel.msgmax=4096 $image cat /proc/sys/kernel/msgmax
	check flags/label 0 "^ok\$" run --label a=b $image echo ok
	if [ "$user" != one ]; then
		check flags/user 0 "^uid=1000\(user\)" run --user user $image id
	else
		check flags/user 125 "uid 1000 does not exist in this user namespace, which has one id, 0 .*/etc/subuid" run --user 1000 $image id
	fi
	d run -d --name first --runtime rt --network none --ipc shareable $image sleep 100 >/dev/null
	check join/network 0 "^ok\$" docker_joined net --network
	check join/pid 0 "sleep 100" run --pid container:first $image ps -o args
	check join/ipc 0 "^ok\$" docker_joined ipc --ipc
	d rm -f first >/dev/null
}

# docker_joined FILE FLAG: a container has the namespace of container "first"
docker_joined() {
	local first second
	first=$(d exec first readlink "/proc/1/ns/$1")
	second=$(run "$2" container:first $image readlink "/proc/self/ns/$1")
	same "$second" "$first" ok
}

docker_life() {
	check life/run 0 "^[0-9a-f]{64}\$" d run -d --name web --runtime rt --network none --init --env KEPT=yes $image \
		sh -c 'trap "exit 3" TERM; echo started; while :; do sleep 0.1; done'
	eventually eval 'd logs web | grep started'
	check life/logs 0 "^started\$" d logs web
	check life/top 0 "sleep|sh -c" d top web
	check life/ps 0 "^web Up" d ps --format '{{.Names}} {{.Status}}'
	check life/exec 0 "^KEPT=yes\$" d exec web env
	check life/exec-code 9 "" d exec web sh -c 'exit 9'
	check life/exec-not-found 126 "executable file not found" d exec web nosuch
	check life/exec-tty 0 "/dev/pts/[0-9]" docker_tty exec -it web tty
	stdin=$w/image.d/file check life/exec-stdin 0 "^of the image\$" d exec -i web cat
	check life/exec-detached 0 "" d exec -d web touch /tmp/made
	check life/exec-detached-ran 0 "" eventually d exec web test -e /tmp/made
	check life/exec-privileged 0 "^CapEff:.$all\$" d exec --privileged web grep CapEff /proc/self/status
	check life/pause 0 "^web\$" d pause web
	check life/paused 0 "^paused\$" d inspect -f '{{.State.Status}}' web
	check life/unpause 0 "^web\$" d unpause web
	check life/restart 0 "^web\$" d restart -t 5 web
	check life/running 0 "^running\$" d inspect -f '{{.State.Status}}' web
	check life/stats 0 "web" d stats --no-stream web
	check life/cp 0 "^of the image\$" eval 'd cp web:/var/data/file - | tar -xO'
	# docker leaves out a limit for which it sees no controller.
	if [ -e /sys/fs/cgroup/memory ] || grep -qsw memory /sys/fs/cgroup/cgroup.controllers; then
		check life/update 1 "resources are not applied" d update --memory 200m --memory-swap 200m web
	else
		check life/update 0 "^web\$" d update --memory 200m --memory-swap 200m web
	fi
	check life/stop 0 "^web\$" d stop -t 5 web
	check life/stop-code 0 "^(3|143)\$" d inspect -f '{{.State.ExitCode}}' web
	check life/start 0 "^web\$" d start web
	check life/kill 0 "^web\$" d kill web
	check life/wait 0 "^137\$" d wait web
	check life/rm 0 "^web\$" d rm web
	check life/restart-policy 0 "^[1-9]" docker_restarts
	check life/health 0 "healthy" docker_health
	d run -d --name hostpid --runtime rt --network none --pid host $image sh -c 'sleep 4321 & exec sleep 4321' >/dev/null
	eventually eval '[ "$(pgrep -fxc "sleep 4321")" = 2 ]'
	check life/rm-force-pid-host 0 "^hostpid\$" d rm -f hostpid
	check life/rm-force-gone 0 "" gone pgrep -fx "sleep 4321"
	d volume rm vol >/dev/null 2>&1 # rootlesskit shows /run by links, which docker takes for a way out
}

docker_restarts() {
	d run -d --name again --runtime rt --network none --restart on-failure:2 $image false >/dev/null
	eventually eval '[ "$(d inspect -f "{{.RestartCount}}" again)" -ge 1 ]'
	d inspect -f '{{.RestartCount}}' again
	d rm -f again >/dev/null
}

docker_health() {
	d run -d --name sick --runtime rt --network none --health-cmd true --health-interval 1s $image sleep 100 >/dev/null
	eventually eval '[ "$(d inspect -f "{{.State.Health.Status}}" sick)" = healthy ]'
	d inspect -f '{{.State.Health.Status}}' sick
	d rm -f sick >/dev/null
}

# What docker of Debian 13 can besides.
docker_13() {
	check tmpfs/read-only 1 "Read-only file system" run --tmpfs /t:ro $image touch /t/x
	check tmpfs/read-only-and-inside 0 "^of the image\$" run --tmpfs /t:ro -v $w/image.d:/t/deep/x:ro $image cat /t/deep/x/file
	check cdi/env 0 "^CDI=given\$" run --device vendor.example/class=one $image env
	check cdi/device 0 "^4\$" run --device vendor.example/class=one $image sh -c 'head -c 4 /dev/cdi0 | wc -c'
	check cdi/mount 0 "^of the image\$" run --device vendor.example/class=one $image cat /usr/lib/vendor/file
	check cdi/unknown 125 "CDI" run --device vendor.example/class=two $image true
}

# Has the daemon read CDI's definitions, not from /etc: rootlesskit shows what lies there by links, and CDI follows none.
docker_cdi() {
	cdi_device $w/cdi $w/image.d/file
	sed -i '1a "features": { "cdi": true }, "cdi-spec-dirs": ["'$w/cdi'"],' /etc/docker/daemon.json
}
