# buildah on rt: sourced by `suite`.

b() { as "$user" buildah --log-level error "$@"; }
run() { b run --isolation oci --runtime /usr/local/bin/rt "$@"; }

buildah_suite() {
	home=$w/home/$user
	mkdir -p "$home/context"
	echo "of the host" >"$home/context/file"
	chown -R "$(id -u "$user"):$(id -g "$user")" "$home/context"
	check pull 0 "[0-9a-f]{64}" b pull -q "docker-archive:$w/image.tar"
	check from 0 "^work\$" b from --name work --network none localhost/busybox
	check run 0 "^hello\$" run work echo hello
	check run/exit-code 7 "" run work sh -c 'exit 7'
	check run/not-found 1 "executable file not found|no such file" run work nosuch
	check run/not-executable 1 "permission denied" run work /bin/not-executable
	check run/tty 0 "/dev/(pts/0|console)" tty "$user" buildah run -t --isolation oci --runtime /usr/local/bin/rt work tty
	stdin=$home/context/file check run/stdin 0 "^of the host\$" run work cat
	check run/volume 0 "^of the host\$" run -v "$home/context:/m:ro" work cat /m/file
	check run/mount 0 "tmpfs on /t type tmpfs" run --mount type=tmpfs,destination=/t work mount
	check run/capabilities 0 "^CapEff:.0{16}\$" run --cap-drop all work grep CapEff /proc/self/status
	check run/hostname 0 "^named\$" run --hostname named work hostname
	check run/killed 0 "" buildah_killed
	check run/changes-stay 0 "" run work sh -c 'echo made >/made'
	check copy 0 "" b copy -q work "$home/context/file" /copied
	check config 0 "" b config --cmd '["cat","/made","/copied"]' --env A=b work
	check commit 0 "[0-9a-f]{64}" b commit -q work localhost/made
	check commit/runs 0 "^made\$" buildah_commit_runs
	if [ "$user" = one ]; then
		check run/user 1 "gid 1000|uid 1000" run --user 1000 work id
	else
		check run/user 0 "^uid=1000" run --user 1000 work id
	fi
	printf '%s\n' 'FROM localhost/busybox' 'RUN echo one >/built' 'RUN echo two >>/built && id -u' 'COPY file /copied' \
		'CMD cat /built' >"$home/context/Dockerfile"
	printf '%s\n' 'FROM localhost/busybox' 'RUN exit 9' >"$home/context/Fails"
	check build 0 "^STEP 5" build
	check build/layers 0 "Using cache" build --layers
	check build/fails 9 "exit status 9|exit code 9" build -f "$home/context/Fails"
	check rm 0 "" b rm -a
	check nothing-left/buildah 0 "^\$" b containers -q
	check nothing-left/rt 0 "^\$" buildah_states
}

build() { b build --isolation oci --runtime /usr/local/bin/rt --network none --layers -t localhost/built "$@" "$home/context"; }
buildah_states() { if [ "$user" = root ]; then as root rt list -q; else b unshare rt list -q; fi; }

buildah_commit_runs() {
	b from --name second --network none localhost/made >/dev/null && run second cat /made
	b rm second >/dev/null
}

# A build that is interrupted leaves no process.
buildah_killed() {
	local buildah
	run work sh -c 'trap "exit 5" TERM; sleep 7654 & wait' &
	eventually pgrep -fx "sleep 7654" || return 1
	buildah=$(pgrep -fo "^buildah .* run .*sleep 7654")
	kill -INT "$buildah"
	wait
	gone pgrep -fx "sleep 7654"
}
