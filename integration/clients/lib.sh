# What the suites share: sourced by `suite`, inside `world`.

. "$(dirname "${BASH_SOURCE[0]}")/../tap"
w=/run/world

# as USER COMMAND...: as one of the world's users, with a login's environment and nothing else, for a minute at most
as() {
	local user=$1 uid home=$w/home/$1 run
	shift
	uid=$(id -u "$user")
	run=/run/user/$uid
	[ "$uid" != 0 ] || run=
	timeout -k 5 "${limit:-60}" setpriv --reuid "$uid" --regid "$uid" --clear-groups \
		env -i -C "$home" HOME="$home" USER="$user" TMPDIR=$w/tmp PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		${run:+XDG_RUNTIME_DIR=$run} ${extra_env:-} "$@"
}

# eventually COMMAND...: until it succeeds, for half a minute and what it takes itself
eventually() {
	local n
	for n in $(seq 300); do
		"$@" >/dev/null 2>&1 && return 0
		sleep 0.1
	done
	"$@"
}

# tty USER COMMAND...: as `as`, with a terminal of its own as stdin, stdout and stderr. script(1) types ^D where its own stdin
# ends, and podman then loses what a short program prints: stdin never ends.
tty() {
	local user=$1 words
	shift
	printf -v words '%q ' "$@"
	[ -p "$w/open" ] || mkfifo "$w/open"
	as "$user" script -qec "$words" /dev/null <>"$w/open"
}

# gone COMMAND...: that it fails at last
gone() {
	local n
	for n in $(seq 300); do
		"$@" >/dev/null 2>&1 || return 0
		sleep 0.1
	done
	"$@"
	return 1
}

# cdi_device DIR FILE: defines in DIR the CDI device vendor.example/class=one, which shows FILE of the host
cdi_device() {
	mkdir -p "$1"
	cat >"$1/vendor.json" <<-JSON
		{"cdiVersion":"0.5.0","kind":"vendor.example/class","devices":[{"name":"one","containerEdits":{
		 "env":["CDI=given"],"deviceNodes":[{"path":"/dev/cdi0","hostPath":"/dev/zero"}],
		 "mounts":[{"hostPath":"$2","containerPath":"/usr/lib/vendor/file","options":["ro","nosuid","nodev","bind"]}],
		 "hooks":[{"hookName":"createContainer","path":"/bin/sh","args":["sh","-c","cat >/dev/null"]}]}}]}
	JSON
}
