# What the suites share: sourced by `suite`, inside `world`.

w=/run/world
passed=0 failed=0 skipped=0

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

# check NAME STATUS REGEX COMMAND...: its exit status, and a line of its stdout or stderr that REGEX matches.
# Reads the file in $stdin, else nothing. Where $loses_output is set and nothing at all came, the command is run once more,
# which is said: containerd loses what a short program has written once in some hundred runs, with every runtime
# (containerd's issue 5741), podman 4.3 once in some ten thousand.
check() {
	local name=$where/$1 status=$2 expected=$3 out got
	shift 3
	out=$("$@" 2>&1 <"${stdin:-/dev/null}")
	got=$?
	if [ -n "${loses_output:-}" ] && [ $got = "$status" ] && [ -z "$out" ] && ! grep -qE -- "$expected" <<<""; then
		echo "AGAIN $name: no output"
		out=$("$@" 2>&1 <"${stdin:-/dev/null}")
		got=$?
	fi
	if [ $got = "$status" ] && grep -qE -- "$expected" <<<"$out"; then
		passed=$((passed + 1))
		echo "PASS $name"
		return 0
	fi
	failed=$((failed + 1))
	echo "FAIL $name: status $got instead of $status, or no line like '$expected' in:"
	head -c 3000 <<<"$out" | sed 's/^/     /'
	return 1
}

# skip NAME REASON
skip() {
	skipped=$((skipped + 1))
	echo "SKIP $where/$1: $2"
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
