# What podman of Debian 13, and what is built on it, ask of a runtime besides: sourced by podman.sh.

podman_13() {
	podman_13_tmpfs
	podman_13_kube
	podman_13_cdi
	podman_13_compose
	[ "$user" = one ] || podman_13_boxes # which want lines in /etc/subuid
}

podman_13_tmpfs() {
	check tmpfs/read-only 1 "Read-only file system" run --tmpfs /t:ro busybox touch /t/x
	check tmpfs/read-only-and-inside 0 "^of the host\$" run --tmpfs /t:ro -v "$home/data:/t/deep/x:ro" busybox cat /t/deep/x/file
	check tmpfs/mode 0 "^755\$" run --tmpfs /etc busybox stat -c %a /etc
	check read-only-tmpfs/false 0 "^of the image\$" run --read-only --read-only-tmpfs=false busybox cat /var/data/file
	check read-only-tmpfs/dev 1 "Read-only file system" run --read-only --read-only-tmpfs=false busybox touch /dev/x
	check read-only-tmpfs/null 0 "^\$" run --read-only --read-only-tmpfs=false busybox sh -c 'echo x >/dev/null'
	if [ "$user" != one ]; then
		check tmpfs/mode-for-others 1 "Permission denied" run --user 1000 --tmpfs /etc busybox touch /etc/ld.so.preload
	fi
	if [ "$user" != root ]; then # whom podman gives a bridge
		check network/pasta 0 "lo: .*UP" p run --rm --network pasta busybox ip -o link
		check network/pasta-interface 0 "^2\$" p run --rm --network pasta busybox sh -c 'ip -o link | wc -l'
	fi
}

podman_13_kube() {
	cat >"$home/data/pod.yaml" <<-YAML
		apiVersion: v1
		kind: Pod
		metadata: {name: kube}
		spec:
		  hostname: kubed
		  containers:
		  - name: web
		    image: localhost/busybox
		    imagePullPolicy: Never
		    command: [sh, -c, "trap 'exit 3' TERM; sleep 1000 & wait"]
		    securityContext: {readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
		    volumeMounts:
		    - {name: host, mountPath: /host, readOnly: true}
		    - {name: scratch, mountPath: /scratch/deep}
		    - {name: memory, mountPath: /memory/deep}
		  - name: side
		    image: localhost/busybox
		    imagePullPolicy: Never
		    command: [sleep, "1000"]
		    securityContext: {privileged: true}
		    volumeMounts:
		    - {name: scratch, mountPath: /scratch}
		  volumes:
		  - {name: host, hostPath: {path: $home/data, type: Directory}}
		  - {name: scratch, emptyDir: {}}
		  - {name: memory, emptyDir: {medium: Memory}}
	YAML
	check kube/play 0 "^Containers?:" p kube play --network none "$home/data/pod.yaml"
	check kube/running 0 "^kube Running 3\$" p pod ps --format '{{.Name}} {{.Status}} {{.NumberOfContainers}}'
	check kube/volume 0 "^of the host\$" p exec kube-web cat /host/file
	check kube/read-only 1 "Read-only file system" p exec kube-web touch /x
	check kube/empty-dir 0 "" p exec kube-web touch /scratch/deep/made
	check kube/empty-dir-shared 0 "^made\$" p exec kube-side ls /scratch
	check kube/memory 0 "^tmpfs\$" p exec kube-web stat -f -c %T /memory/deep
	check kube/hostname 0 "^kubed\$" p exec kube-side hostname
	check kube/generate 0 "^kind: Pod" p kube generate kube
	check kube/down 0 "kube|[0-9a-f]{64}" p kube down "$home/data/pod.yaml"
}

podman_13_cdi() {
	cdi_device /etc/cdi "$home/data/file"
	check cdi/env 0 "^CDI=given\$" run --device vendor.example/class=one busybox env
	check cdi/device 0 "^4\$" run --device vendor.example/class=one busybox sh -c 'head -c 4 /dev/cdi0 | wc -c'
	check cdi/mount 0 "^of the host\$" run --device vendor.example/class=one busybox cat /usr/lib/vendor/file
	check cdi/unknown 126 "unresolvable CDI" run --device vendor.example/class=two busybox true
}

podman_13_compose() {
	mkdir -p "$home/compose"
	cat >"$home/compose/compose.yaml" <<-YAML
		services:
		  web:
		    image: localhost/busybox
		    command: ["sh", "-c", "trap 'exit 0' TERM; echo up; sleep 1000 & wait"]
		    environment: {A: b}
		    read_only: true
		    tmpfs: [/scratch]
		    volumes: ["../data:/data:ro", "kept:/kept"]
		    ulimits: {nofile: 100}
		    cap_drop: [ALL]
		    init: true
		  job:
		    image: localhost/busybox
		    network_mode: none
		    depends_on: [web]
		    command: ["cat", "/data/file"]
		    volumes: ["../data:/data:ro"]
		volumes: {kept: {}}
	YAML
	chown -R "$(id -u "$user"):$(id -g "$user")" "$home/compose"
	check compose/up 0 "" compose up -d
	check compose/ps 0 "web" compose ps
	check compose/exec 0 "^A=b\$" compose exec -T web env
	check compose/volume 0 "^of the host\$" compose exec -T web cat /data/file
	check compose/run 0 "^of the host\$" compose run --rm -T job
	check compose/down 0 "" compose down -t 2 -v
}

compose() { extra_env="PODMAN_COMPOSE_WARNING_LOGS=false" as "$user" sh -c 'cd "$HOME/compose" && exec podman-compose "$@"' sh "$@"; }

# distrobox and toolbox are flags for podman, and a program of the host's inside, which installs packages: the flags.
podman_13_boxes() {
	local flags init
	for init in "" --init; do
		flags=$(as "$user" distrobox-create --dry-run --pull no $init --image localhost/busybox --name box | tr '\n' ' ')
		check distrobox$init/create 0 "^[0-9a-f]{64}\$" box "${flags%% --entrypoint *}"
		box_works distrobox$init
	done
	# As `toolbox --log-level debug create` 0.0.99.4 shows them, without D-Bus's socket.
	check toolbox/create 0 "^[0-9a-f]{64}\$" box "podman --log-level error create --cgroupns host --dns none
		--env TOOLBOX_PATH=/usr/bin/toolbox --env XDG_RUNTIME_DIR=/run/user/$(id -u "$user") --hostname toolbox --ipc host
		--label com.github.containers.toolbox=true --mount type=devpts,destination=/dev/pts --name box --network host
		--no-hosts --pid host --privileged --security-opt label=disable --ulimit host --userns keep-id --user root:root
		--volume /:/run/host:rslave --volume /dev:/dev:rslave --volume $home:$home:rslave
		--volume /usr/bin/toolbox:/usr/bin/toolbox:ro --volume /media:/media:rslave --volume /mnt:/mnt:rslave
		--volume /etc/profile.d/toolbox.sh:/etc/profile.d/toolbox.sh:ro"
	box_works toolbox
}

# box "podman FLAGS": with a command that stays
box() { eval "as '$user' ${1//$'\n'/ } localhost/busybox sleep 1000"; }

box_works() {
	check $1/start 0 "^box\$" p start box
	check $1/root 0 "^0\$" p exec --user 0 box id -u
	check $1/host 0 "Debian" p exec box cat /run/host/etc/os-release
	check $1/home 0 "^of the host\$" p exec box cat "$home/data/file"
	if [[ $1 = distrobox* ]]; then # as distrobox-init does
		check $1/devpts 0 "^\$" p exec --user 0 box sh -c \
			'mount -t devpts devpts -o noexec,nosuid,newinstance,ptmxmode=0666,mode=0620,gid=5 /dev/pts && mount --bind /dev/pts/ptmx /dev/ptmx'
	fi
	check $1/tty 0 "/dev/pts/[0-9]" tty "$user" podman exec -it box tty
	check $1/rm 0 "box" p rm -f -t 0 box
}
