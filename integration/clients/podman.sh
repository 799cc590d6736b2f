# podman on rt: sourced by `suite`.

p() { as "$user" podman "$@"; }
run() { p run --rm --network none "$@"; }

podman_suite() {
	loses_output=yes
	home=$w/home/$user
	# what --privileged gives: root has here what the machine's root has, others have all in their user namespace
	printf -v all_caps '%016x' $(((1 << ($(cat /proc/sys/kernel/cap_last_cap) + 1)) - 1))
	[ "$user" != root ] || all_caps=$(awk '/CapBnd/ { print $2 }' /proc/self/status)
	mkdir -p "$home/data"
	echo "of the host" >"$home/data/file"
	chown -R "$(id -u "$user"):$(id -g "$user")" "$home/data"

	check load 0 "localhost/busybox" p load -qi $w/image.tar
	check runtime 0 "^rt /usr/local/bin/rt\$" p info -f '{{.Host.OCIRuntime.Name}} {{.Host.OCIRuntime.Path}}'
	podman_run
	podman_flags
	podman_ids
	podman_mounts
	podman_namespaces
	podman_life
	podman_exec
	podman_pods
	podman_build
	if [ "$layout" = trixie ]; then
		. ./podman13.sh
		podman_13
	fi
	check nothing-left/podman 0 "^\$" p ps -aq
	check nothing-left/rt 0 "^\$" podman_states
}

# The containers that rt knows of, as it looks from where podman calls it.
podman_states() {
	if [ "$user" = root ]; then as root rt list -q; else p unshare rt list -q; fi
}

podman_run() {
	check run 0 "^hello\$" run busybox echo hello
	check run/user-map 0 "^root 1\$" run busybox sh -c 'echo $(whoami) $$'
	stdin=$home/data/file check run/stdin 0 "^of the host\$" run -i busybox cat
	check run/exit-code 7 "" run busybox sh -c 'exit 7'
	check run/exit-code-of-a-signal 139 "" run --init busybox sh -c 'kill -SEGV $$'
	check run/not-executable 126 "permission denied" run busybox /bin/not-executable
	check run/directory 126 "permission denied|is a directory" run busybox /tmp
	check run/not-in-path 127 "executable file .nosuch. not found in .PATH|executable file not found" run busybox nosuch
	check run/no-such-file 127 "no such file or directory" run busybox /no/such
	check run/no-such-interpreter 1 "rt: exec .*no such file or directory" run busybox /bin/bad-interpreter
	check run/bad-flag 125 "unknown flag" run --no-such-flag busybox true
	check run/tty 0 "/dev/(pts/0|console)" tty "$user" podman run --rm -it --network none busybox tty
	# podman sets it a moment after the start
	local wait_for_size="sh -c 'until stty size 2>/dev/null | grep \"21 77\"; do sleep 0.1; done'"
	check run/tty-size 0 "21 77" tty "$user" sh -c "stty rows 21 cols 77; podman run --rm -it --network none busybox $wait_for_size"
	check run/default-network 0 "(tap0|eth0)" p run --rm busybox ip -o link
	check run/init 0 "^(catatonit|podman-init)\$" run --init busybox cat /proc/1/comm
	check run/read-only 1 "Read-only file system" run --read-only busybox touch /x
	check run/read-only-tmp 0 "" run --read-only busybox touch /tmp/x /var/tmp/x /run/x /dev/shm/x
	check run/hostname 0 "^named\$" run --hostname named busybox hostname
	check run/workdir 0 "^/var\$" run --workdir /var busybox pwd
	check run/env 0 "^A=b\$" run --env A=b busybox env
	check run/detached 0 "^[0-9a-f]{64}\$" p run -d --name d --network none busybox sleep 100
	check run/name-in-use 125 "already in use" run --name d busybox true
	check run/force-remove 0 "d|[0-9a-f]{64}" p rm -f -t 0 d
	check run/pid-file 0 "^[0-9]+\$" podman_pid_file
}

# The pid in podman's pid file is that of the container's first process.
podman_pid_file() {
	p run -d --name pidfile --network none --pidfile "$home/pid" busybox sleep 77 >/dev/null
	# start returns when the container is released, a moment before its exec
	for _ in {1..50}; do
		grep -q sleep /proc/"$(cat "$home/pid")"/comm && cat "$home/pid" && break
		sleep 0.1
	done
	p rm -f -t 0 pidfile >/dev/null
}

podman_flags() {
	check caps/none 0 "^CapEff:\s0{16}\$" run --cap-drop all busybox grep CapEff /proc/self/status
	check caps/one 0 "^CapBnd:\s0{12}1000\$" run --cap-drop all --cap-add net_admin busybox grep CapBnd /proc/self/status
	check caps/privileged 0 "^CapEff:\s$all_caps\$" run --privileged busybox grep CapEff /proc/self/status
	check seccomp/default 0 "^Seccomp:\s2\$" run busybox grep Seccomp: /proc/self/status
	check seccomp/unconfined 0 "^Seccomp:\s0\$" run --security-opt seccomp=unconfined busybox grep Seccomp: /proc/self/status
	cat >"$home/data/seccomp.json" <<-JSON
		{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO","errnoRet":95}]}
	JSON
	check seccomp/file 1 "(Operation n|N)ot supported" run --security-opt "seccomp=$home/data/seccomp.json" busybox mkdir /tmp/x
	check no-new-privileges 0 "^NoNewPrivs:\s1\$" run --security-opt no-new-privileges busybox grep NoNewPrivs /proc/self/status
	check mask 0 "^0\$" run --security-opt mask=/var/data busybox sh -c 'ls /var/data | wc -l'
	check unmask 0 "[1-9]" run --security-opt unmask=ALL busybox sh -c 'ls /proc/acpi /sys/firmware 2>/dev/null | wc -l'
	check device 0 "^c.* /dev/tun2\$" run --device /dev/net/tun:/dev/tun2 busybox ls -l /dev/tun2
	check device/works 0 "^4\$" run --device /dev/zero:/dev/nought busybox sh -c 'head -c 4 /dev/nought | wc -c'
	check ulimit 0 "^100 200\$" run --ulimit nofile=100:200 busybox sh -c 'echo $(ulimit -Sn) $(ulimit -Hn)'
	check ulimit/host 0 "^[0-9]+|unlimited" run --ulimit host busybox sh -c 'ulimit -n'
	check umask 0 "^0?077\$" run --umask 077 busybox sh -c umask
	check shm-size 0 "size=1024k" run --shm-size 1m busybox sh -c 'mount | grep /dev/shm'
	check sysctl 0 "^4096\$" run --sysctl kernel.msgmax=4096 busybox cat /proc/sys/kernel/msgmax
	check oom-score 0 "^[0-9]+\$" run --oom-score-adj 500 busybox cat /proc/self/oom_score_adj
	check annotation 0 "^value\$" podman_annotation
	check timezone 0 "UTC" run --tz UTC busybox date
	check preserve-fds 0 "^of the host\$" podman_preserve_fds
	check hooks-dir 0 '"status": *"(creating|created)"' podman_hooks
	check notify/conmon 0 "^MAINPID=[0-9]+" podman_notify conmon
	check notify/container 0 "^READY=1" podman_notify container
	check entrypoint 0 "^in\$" run --entrypoint '["/bin/echo","in"]' busybox
	check rootfs 0 "^in a directory\$" podman_rootfs
	check systemd 0 "tmpfs on /run type tmpfs" run --systemd=always busybox mount
	check limits 0 "^ok\$" run --cgroups=disabled busybox echo ok
	check cgroups/disabled-detached 0 "^running\$" podman_no_cgroups
	check timeout 255 "" run --timeout 1 busybox sleep 20
}

podman_annotation() {
	p create --name annotated --annotation a.b=value busybox true >/dev/null &&
		p init annotated >/dev/null && podman_state annotated | python3 -c 'import json,sys; print(json.load(sys.stdin)["annotations"]["a.b"])'
	p rm -f -t 0 annotated >/dev/null
}

# podman_state NAME: what rt says of a container of podman's
podman_state() {
	local id
	id=$(p inspect -f '{{.Id}}' "$1")
	if [ "$user" = root ]; then as root rt state "$id"; else p unshare rt state "$id"; fi
}

podman_preserve_fds() {
	run --preserve-fds 2 busybox sh -c 'cat <&4' 3</dev/null 4<"$home/data/file"
}

podman_hooks() {
	mkdir -p "$home/hooks.d"
	rm -f "$home/data/hook"
	cat >"$home/hooks.d/note.json" <<-JSON
		{"version":"1.0.0","hook":{"path":"/bin/sh","args":["sh","-c","cat >>$home/data/hook"]},
		 "when":{"always":true},"stages":["prestart","createRuntime","createContainer","startContainer","poststart","poststop"]}
	JSON
	sed -i 's/,"createContainer","startContainer"//' "$home/hooks.d/note.json" # these run where the host's file is not
	run --hooks-dir "$home/hooks.d" busybox true && cat "$home/data/hook"
}

# podman_notify MODE: what the service manager is told
podman_notify() {
	local socket=$home/data/notify.sock reader
	rm -f "$socket"
	as "$user" python3 -c '
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
s.settimeout(50)
while True:
    said = s.recv(4096).decode()
    print(said, flush=True)
    if "READY=1" in said:
        break' "$socket" &
	reader=$!
	eventually test -S "$socket"
	extra_env=NOTIFY_SOCKET=$socket p run -d --name notify --network none --sdnotify "$1" busybox sh -c 'notify READY=1; sleep 60' >/dev/null
	wait $reader
	p rm -f -t 0 notify >/dev/null
}

podman_rootfs() {
	if [ ! -d "$home/rootfs" ]; then
		mkdir "$home/rootfs"
		tar -xOf $w/image.tar layer.tar | tar -xC "$home/rootfs"
		chown -R "$(id -u "$user"):$(id -g "$user")" "$home/rootfs"
	fi
	run --rootfs "$home/rootfs" echo in a directory
}

podman_no_cgroups() {
	p run -d --name nocg --cgroups=disabled --network none busybox sleep 100 >/dev/null
	p inspect -f '{{.State.Status}}' nocg
	p rm -f -t 0 nocg >/dev/null
}

podman_ids() {
	check user/root 0 "^uid=0\(root\) gid=0\(root\)" run --user 0:0 busybox id
	check group-add/keep-groups 0 "^uid=0" run --group-add keep-groups busybox id
	if [ "$user" = one ]; then
		check user/other 126 "gid 1000 does not exist in this user namespace, which has one id, 0|uid 1000 does not exist in this user namespace, which has one id, 0 .*/etc/subuid" run --user 1000 busybox id
		check user/other-exec 255 "gid 1000: .*does not exist in this user namespace.*/etc/subgid" podman_exec_as 1000
		check user/other-in-a-namespace 0 "^uid=1000" run --uidmap 1000:0:1 --gidmap 1000:0:1 --user 1000:1000 busybox id
		case $layout in
		trixie) check user/keep-id 0 "^uid=23456" run --userns keep-id busybox id ;;
		*) check user/keep-id 125 "keep-id|subuid|user namespace|sub.?ids" run --userns keep-id busybox id ;;
		esac
		check group-add/ignored 0 "^uid=0" run --group-add extra busybox id
	else
		check user/other 0 "^uid=1000\(user\) gid=1000\(user\)" run --user user busybox id
		check user/number 0 "^uid=4321\(4321\) gid=4322\(4322\)" run --user 4321:4322 busybox id
		check user/other-exec 0 "^uid=1000\(user\)" podman_exec_as 1000
		check group-add 0 "2000\(extra\)" run --group-add extra busybox id
		check user/capabilities 0 "^CapEff:\s0{16}\$" run --user user busybox grep CapEff /proc/self/status
	fi
	if [ "$user" = many ]; then
		check user/keep-id 0 "^uid=23458" run --userns keep-id busybox id
		check user/auto 0 "^ +0 +[1-9]" run --userns auto:size=1000 busybox cat /proc/self/uid_map
		check user/nomap 0 "^ +0 +[0-9]" run --userns nomap busybox cat /proc/self/uid_map
	fi
	if [ "$user" = root ]; then
		check user/uidmap 0 "^ +0 +100000 +5000\$" run --uidmap 0:100000:5000 busybox cat /proc/self/uid_map
	fi
}

podman_exec_as() {
	local status
	p run -d --name execas --network none busybox sleep 100 >/dev/null
	p exec --user "$1" execas id
	status=$?
	p rm -f -t 0 execas >/dev/null
	return $status
}

podman_mounts() {
	local d=$home/data
	chown -R "$(id -u "$user"):$(id -g "$user")" "$d"
	check volume/anonymous 0 "^of the image\$" run -v /var/data busybox cat /var/data/file
	check volume/rw 0 "^of the host\$" run -v "$d:/m" busybox sh -c 'echo new >/m/new; cat /m/file'
	check volume/written 0 "^new\$" cat "$d/new"
	check volume/ro 1 "Read-only file system" run -v "$d:/m:ro" busybox touch /m/x
	check volume/options 0 "nosuid,nodev,noexec" run -v "$d:/m:rw,nosuid,nodev,noexec" busybox grep " /m " /proc/self/mountinfo
	check volume/slave 0 "master:" run -v "$d:/m:rslave" busybox grep " /m " /proc/self/mountinfo
	check volume/shared 0 "shared:" run -v "$d:/m:rshared" busybox grep " /m " /proc/self/mountinfo
	check volume/private 0 " - " run -v "$d:/m:rprivate" busybox sh -c 'grep " /m " /proc/self/mountinfo | grep -v shared: | grep -v master:'
	check volume/overlay 0 "^of the host\$" run -v "$d:/m:O" busybox sh -c 'touch /m/only-inside; cat /m/file'
	check volume/overlay-kept-out 1 "" test -e "$d/only-inside"
	check volume/chown 0 "^of the host\$" run -v "$d:/m:U" busybox cat /m/file
	check volume/relabel 0 "^of the host\$" run -v "$d:/m:z" busybox cat /m/file
	check volume/file 0 "^of the host\$" run -v "$d/file:/a/b/c/file:ro" busybox cat /a/b/c/file
	check volume/named 0 "^of the image\$" run -v vol:/var/data busybox cat /var/data/file
	check volume/named-remove 0 "^vol\$" p volume rm vol
	check volume/image 0 "^of the image\$" run --mount type=image,source=busybox,destination=/image busybox cat /image/var/data/file
	check volume/bind-mount 0 "^of the host\$" run --mount "type=bind,src=$d,dst=/m,ro,bind-propagation=private" busybox cat /m/file
	check volume/devpts 0 "devpts on /own type devpts" run --mount type=devpts,destination=/own busybox mount
	check volume/host-proc 0 "^[0-9]+\$" run -v /proc:/hostproc:ro busybox sh -c 'ls -d /hostproc/[0-9]* | wc -l'
	check volume/host-dev 0 "^c" run -v /dev:/dev busybox ls -l /dev/null
	check tmpfs 0 "tmpfs on /t type tmpfs .*nodev.*size=1024k.*mode=1770" run --tmpfs /t:size=1m,mode=1770 busybox mount
	check tmpfs/copy-up 0 "^of the image\$" run --tmpfs /var/data busybox cat /var/data/file
	case $layout/$user in
	trixie/one | trixie/many) check volume/idmap 0 "^of the host\$" run -v "$d:/m:idmap" busybox cat /m/file ;;
	*/one | */many) check volume/idmap 126 "idmap|operation not permitted" run -v "$d:/m:idmap" busybox cat /m/file ;;
	*/root) check volume/idmap 0 "^of the host\$" run --uidmap 0:0:1000 -v "$d:/m:idmap" busybox cat /m/file ;;
	esac
}

podman_namespaces() {
	check net/host 0 "^ok\$" run_in network host
	check net/slirp4netns 0 "tap0" p run --rm --network slirp4netns busybox ip -o link
	check pid/host 0 "world|bash|podman|conmon" run --pid host busybox ps -o comm
	check ipc/host 0 "^ok\$" run_in ipc host
	check uts/host 0 "^ok\$" run_in uts host
	check cgroupns/host 0 "^ok\$" run_in cgroupns host
	check ipc/private 0 "^ok\$" run --ipc private busybox echo ok
	p run -d --name first --network none --ipc shareable busybox sleep 100 >/dev/null
	local kind
	for kind in network pid ipc uts cgroupns; do
		[ $kind != cgroupns ] || continue # podman cannot
		check join/$kind 0 "^ok\$" run_joined $kind
	done
	check join/userns 0 "^ok\$" p run --rm --userns container:first --network container:first busybox echo ok
	check join/all 0 "^ok\$" p run --rm --network container:first --pid container:first --ipc container:first --uts container:first busybox echo ok
	check pid/host-ends 0 "first" p rm -f -t 0 first
	# the processes of a container without a PID namespace end with it
	p run -d --name hostpid --network none --pid host busybox sh -c 'sleep 4321 & exec sleep 4321' >/dev/null
	eventually eval '[ "$(pgrep -fxc "sleep 4321")" = 2 ]'
	check pid/host-rm 0 "hostpid" p rm -f -t 0 hostpid
	check pid/host-gone 0 "" gone pgrep -fx "sleep 4321"
}

# run_in FLAG host: the container has the caller's namespace
run_in() {
	local file=$1
	case $1 in network) file=net ;; cgroupns) file=cgroup ;; esac
	local outside inside
	inside=$(p run --rm $([ "$1" = network ] || echo --network none) "--$1" host busybox readlink /proc/self/ns/$file) || return 1
	outside=$(as "$user" readlink /proc/self/ns/$file)
	[ "$inside" = "$outside" ] && echo ok || echo "$inside is not $outside"
}

run_joined() {
	local file=$1 first second
	[ "$1" != network ] || file=net
	first=$(p exec first readlink /proc/1/ns/$file)
	second=$(p run --rm $([ "$1" = network ] || echo --network none) "--$1" container:first busybox readlink /proc/self/ns/$file)
	[ "$first" = "$second" ] && echo ok || echo "$second is not $first"
}

podman_life() {
	check life/create 0 "^[0-9a-f]{64}\$" p create --name c --network none --init busybox \
		sh -c 'trap "echo got it; exit 3" TERM; echo started; while :; do sleep 0.1; done'
	check life/init 0 "c" p init c
	check life/initialized 0 "^(initialized|created)\$" p inspect -f '{{.State.Status}}' c
	check life/start 0 "^c\$" p start c
	eventually eval 'p logs c | grep -q started'
	check life/logs 0 "^started\$" p logs c
	check life/ps 0 "^c Up" p ps --format '{{.Names}} {{.Status}}'
	check life/top 0 "sleep|sh" p top c
	check life/top-descriptors 0 "^1 " p top c pid user comm
	check life/restart 0 "^c\$|[0-9a-f]{64}" p restart -t 5 c
	check life/running 0 "^running\$" p inspect -f '{{.State.Status}}' c
	podman_pause
	podman_stats
	check life/kill-other 0 "^c\$" p kill -s WINCH c
	check life/cp-in 0 "" p cp "$home/data/file" c:/tmp/copied
	check life/cp-out 0 "^of the host\$" podman_cp_out
	check life/diff 0 "^A /tmp/copied" p diff c
	check life/stop 0 "^c\$" p stop -t 5 c
	check life/stop-code 0 "^(3|143)\$" p inspect -f '{{.State.ExitCode}}' c
	check life/commit 0 "^[0-9a-f]{64}\$" p commit -q c localhost/made
	check life/commit-run 0 "^of the host\$" run localhost/made cat /tmp/copied
	check life/rmi 0 "Untagged|Deleted" p rmi localhost/made
	check life/start-attached 137 "^started" podman_start_attached
	check life/rm 0 "c" p rm -f -t 0 c
	p run -d --name k --network none busybox sleep 100 >/dev/null
	check life/kill 0 "^k\$" p kill k
	check life/wait 0 "^137\$" p wait k
	check life/kill-stopped 125 "state improper|not running|can only kill running" p kill k
	check life/rm-stopped 0 "k" p rm k
	check life/health 0 "healthy" podman_health
	check life/attach 0 "^line\$" podman_attach
	check life/logs-follow 0 "^3\$" podman_logs_follow
	p create --name never --network none busybox true >/dev/null
	check life/rm-created 0 "never" p rm never
	check life/start-missing-program 125 "executable file" podman_start_missing
}

podman_pause() {
	# podman asks the runtime on cgroup version 2 only, if it is not root's.
	if [ "$user" != root ] && [ "$layout" = machine ] && [ "$(stat -fc %T /sys/fs/cgroup)" != cgroup2fs ]; then
		check life/pause-v1 125 "cgroup|not supported" p pause c
		return
	fi
	check life/pause 0 "^c\$|[0-9a-f]{64}" p pause c
	check life/paused 0 "^paused\$" p inspect -f '{{.State.Status}}' c
	check life/paused-processes 0 "^T" podman_process_states
	check life/unpause 0 "^c\$|[0-9a-f]{64}" p unpause c
	check life/unpaused 0 "^running\$" p inspect -f '{{.State.Status}}' c
}

# The states of all processes of container c, as a word.
podman_process_states() {
	local pid
	pid=$(p inspect -f '{{.State.Pid}}' c)
	ps -o stat= --pid "$pid" --ppid "$pid"
}

podman_stats() {
	if [ "$user" != root ] && [ "$layout" = machine ] && [ "$(stat -fc %T /sys/fs/cgroup)" != cgroup2fs ]; then
		check life/stats-v1 125 "cgroup" p stats --no-stream c
		return
	fi
	check life/stats 0 " c +" p stats --no-stream c
}

podman_cp_out() { p cp c:/tmp/copied - | tar -xO; }
podman_start_attached() {
	# its third start
	(eventually eval '[ "$(p logs c | grep -c started)" = 3 ]' && p kill c >/dev/null) &
	p start -a c
}
podman_health() {
	p run -d --name h --network none --health-cmd 'test -e /tmp/healthy' --health-interval disable busybox sh -c 'touch /tmp/healthy; sleep 100' >/dev/null
	eventually p exec h test -e /tmp/healthy
	p healthcheck run h && p inspect -f '{{.State.Health.Status}}{{.State.Healthcheck.Status}}' h
	p rm -f -t 0 h >/dev/null
}
podman_attach() {
	p create -i --name a --network none busybox cat >/dev/null
	p start a >/dev/null
	echo line | p attach a
	p rm -f -t 0 a >/dev/null
}
podman_logs_follow() {
	p run -d --name l --network none busybox sh -c 'for i in 1 2 3; do echo $i; sleep 0.1; done' >/dev/null
	p logs -f l
	p rm -f -t 0 l >/dev/null
}
podman_start_missing() {
	local status
	p create --name missing --network none busybox nosuch >/dev/null
	p start -a missing
	status=$?
	p rm -f missing >/dev/null
	return $status
}

podman_exec() {
	p run -d --name e --network none --env KEPT=yes busybox sleep 100 >/dev/null
	check exec 0 "^hello\$" p exec e echo hello
	check exec/environment 0 "^KEPT=yes\$" p exec e env
	check exec/env 0 "^A=b\$" p exec --env A=b e env
	check exec/workdir 0 "^/var\$" p exec --workdir /var e pwd
	check exec/exit-code 7 "" p exec e sh -c 'exit 7'
	check exec/signal 137 "" p exec e sh -c 'kill -9 $$'
	check exec/not-found 127 "executable file|no such file" p exec e nosuch
	check exec/not-executable 126 "permission denied" p exec e /bin/not-executable
	check exec/workdir-missing 127 "no such file or directory|chdir" p exec --workdir /no/such e pwd
	stdin=$home/data/file check exec/stdin 0 "^of the host\$" p exec -i e cat
	check exec/tty 0 "/dev/pts/[0-9]" tty "$user" podman exec -it e tty
	check exec/detached 0 "" p exec -d e sh -c 'echo x >/tmp/done; sleep 100'
	check exec/detached-ran 0 "" eventually p exec e test -e /tmp/done
	check exec/top 0 "sleep 100" p exec e ps
	check exec/privileged 0 "^CapEff:\s$all_caps\$" p exec --privileged e grep CapEff /proc/self/status
	check exec/seccomp 0 "^Seccomp:\s2\$" p exec e grep Seccomp: /proc/self/status
	check exec/preserve-fds 0 "^of the host\$" podman_exec_fds
	check exec/latest 0 "^ok\$" p exec e echo ok
	check exec/many 0 "^20\$" podman_exec_many
	p kill e >/dev/null
	p wait e >/dev/null
	check exec/stopped 255 "running|state improper" p exec e true
	p rm -f -t 0 e >/dev/null
}

podman_exec_fds() { p exec --preserve-fds 1 e sh -c 'cat <&3' 3<"$home/data/file"; }
podman_exec_many() { for _ in $(seq 4); do (for _ in $(seq 5); do p exec e echo x; done) & done | grep -c x; }

podman_pods() {
	check pod/create 0 "^[0-9a-f]{64}\$" p pod create --name pod --network none --hostname podded
	check pod/run 0 "^[0-9a-f]{64}\$" p run -d --pod pod --name pa busybox sleep 100
	check pod/second 0 "^podded\$" p run --rm --pod pod busybox hostname
	check pod/shared 0 "^ok\$" podman_pod_shared
	check pod/ps 0 "^pod Running" p pod ps --format '{{.Name}} {{.Status}}'
	check pod/top 0 "sleep" p pod top pod
	check pod/kill 0 "[0-9a-f]{64}|pod" p pod kill pod
	check pod/start 0 "[0-9a-f]{64}|pod" p pod start pod
	check pod/stop 0 "[0-9a-f]{64}|pod" p pod stop -t 0 pod
	check pod/rm 0 "[0-9a-f]{64}|pod" p pod rm -f -t 0 pod
	check pod/pid-shared 0 "^1\$" podman_pod_pid
}

podman_pod_shared() {
	local a b
	a=$(p exec pa readlink /proc/self/ns/ipc)
	b=$(p run --rm --pod pod busybox readlink /proc/self/ns/ipc)
	[ "$a" = "$b" ] && echo ok
}

# In a pod that shares its PID namespace, process 1 is the pod's own, and kill reaches the container alone.
podman_pod_pid() {
	p pod create --name pp --network none --share pid,ipc >/dev/null
	p run -d --pod pp --name one busybox sleep 111 >/dev/null
	p run -d --pod pp --name two busybox sleep 222 >/dev/null
	p exec one ps -o args | grep -q "sleep 222" || echo "two is not seen"
	p rm -f -t 0 one >/dev/null
	p exec two ps -o args | grep -cx "sleep 222"
	p exec two ps -o args | grep -x "sleep 111"
	p pod rm -f -t 0 pp >/dev/null
}

podman_build() {
	mkdir -p "$home/build"
	printf '%s\n' 'FROM localhost/busybox' 'RUN echo built >/built && id -u' 'RUN --mount=type=tmpfs,destination=/t touch /t/x' \
		'WORKDIR /somewhere' 'COPY file /copied' 'CMD cat /built /copied' >"$home/build/Dockerfile"
	cp "$home/data/file" "$home/build/file"
	chown -R "$(id -u "$user"):$(id -g "$user")" "$home/build"
	check build 0 "localhost/built" p build --isolation oci --runtime /usr/local/bin/rt --network none -t built "$home/build"
	check build/run 0 "^built\$" run localhost/built
	check build/fails 7 "exit status 7|exit code 7" podman_build_fails
	p rmi -f built >/dev/null 2>&1
}

podman_build_fails() {
	printf '%s\n' 'FROM localhost/busybox' 'RUN exit 7' >"$home/build/Fails"
	p build --isolation oci --runtime /usr/local/bin/rt --network none -f "$home/build/Fails" "$home/build"
}
