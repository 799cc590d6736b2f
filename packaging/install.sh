#!/bin/sh
# Installs rt from the tree that this script lies in, or removes what it has installed.
# usage: install.sh [--hooks | --uninstall]
#     --hooks      also let hooks give GPUs, MPI and RDMA devices to every container (/etc/rt/hooks.d)
#     --uninstall  remove what was installed; the tree is not needed
# environment: PREFIX (/usr/local); DESTDIR, a directory in which the system lies; MANIFEST=no for packages, whose manager
#     knows what it has installed
set -eu
umask 022
export LC_ALL=C
PREFIX=${PREFIX:-/usr/local} DESTDIR=${DESTDIR:-}
tree=$(cd "$(dirname "$0")" && pwd)
say() { echo "install.sh: $*" >&2; }
case $PREFIX in
/*) PREFIX=${PREFIX%/} ;;
*) say "PREFIX=$PREFIX: not an absolute path" && exit 2 ;;
esac
manifest=$PREFIX/share/rt/manifest
profile=/etc/apparmor.d/rt

# apparmor ACTION: tells the kernel of the profile that is in place.
apparmor() {
	[ -z "$DESTDIR" ] && [ -d /sys/kernel/security/apparmor ] || return 0
	apparmor_parser "$1" "$profile" || say "AppArmor: do this as root: apparmor_parser $1 $profile"
}

# Removes what the manifest names: files in any order, and then the directories that were made for them.
uninstall() {
	if [ ! -e "$DESTDIR$manifest" ]; then
		say "$DESTDIR$manifest: there is no such file; nothing was installed with PREFIX=$PREFIX"
		exit 1
	fi
	! grep -qxF "$profile" "$DESTDIR$manifest" || apparmor -R
	list=$(mktemp)
	cat "$DESTDIR$manifest" >"$list"
	while read -r path; do
		case $path in */) ;; *) rm -f "$DESTDIR$path" ;; esac
	done <"$list"
	rm -f "$DESTDIR$manifest"
	sort -r "$list" | while read -r path; do
		case $path in */) rmdir "$DESTDIR$path" 2>/dev/null || true ;; esac
	done
	rm -f "$list"
}

# make_dir DIRECTORY: with those above it, noted if they are new.
make_dir() {
	[ ! -d "$DESTDIR$1" ] || return 0
	[ "$1" = "${1%/*}" ] || [ -z "${1%/*}" ] || make_dir "${1%/*}"
	mkdir "$DESTDIR$1"
	echo "$1/" >>"$new"
}

# copy FILE PATH: the file, with paths of this PREFIX, as PATH. A program that runs keeps the file that it has.
copy() {
	make_dir "${2%/*}"
	echo "$2" >>"$new"
	if [ -h "$1" ]; then
		ln -sfn "$(readlink "$1")" "$DESTDIR$2"
		return
	fi
	mode=644
	[ ! -x "$1" ] || mode=755
	case $1 in
	*/share/rt/apparmor/*) sed "s|/usr/{,local/}bin|$own|" "$1" >"$new.file" ;;
	*/share/rt/*) sed "s|/usr/local/|$(escaped "$PREFIX")/|g" "$1" >"$new.file" ;;
	*) cat "$1" >"$new.file" ;;
	esac
	install -m $mode "$new.file" "$DESTDIR$2.new"
	mv -f "$DESTDIR$2.new" "$DESTDIR$2"
}
escaped() { printf '%s' "$1" | sed 's/[&|\\]/\\&/g'; }

case ${1:-} in
--uninstall)
	uninstall
	exit
	;;
--hooks | '') ;;
*)
	sed -n '2,/^set/{/^# /s/^# //p}' "$0" >&2
	exit 2
	;;
esac

# What holds for both directories where executables usually are stays as it is.
own='/usr/{,local/}bin'
case $PREFIX in /usr | /usr/local) ;; *) own=$(escaped "$PREFIX")/bin ;; esac
new=$(mktemp)
trap 'rm -f "$new" "$new.file" "$new.list"' EXIT
old=/dev/null
[ ! -e "$DESTDIR$manifest" ] || old=$DESTDIR$manifest

mkdir -p "$DESTDIR/"
find "$tree" -mindepth 2 ! -type d | sort >"$new.list"
while read -r file; do
	copy "$file" "$PREFIX${file#"$tree"}"
done <"$new.list"
if [ "${1:-}" = --hooks ]; then
	for file in "$tree"/share/rt/hooks/*.json; do copy "$file" "/etc/rt/hooks.d/${file##*/}"; done
else
	# An installation over one with --hooks keeps them.
	grep '^/etc/rt' "$old" >>"$new" || true
fi
# Ubuntu's AppArmor lets only programs with a profile use user namespaces. Before AppArmor 4 there is no such rule.
if [ "${MANIFEST:-}" != no ] && { [ -n "$DESTDIR" ] || [ -e /etc/apparmor.d/abi/4.0 ]; }; then
	if [ -n "$DESTDIR" ] || [ -w /etc/apparmor.d ]; then
		copy "$tree/share/rt/apparmor/rt" $profile
		apparmor -r
	else
		say "AppArmor: if containers do not start, do this as root: cp $PREFIX/share/rt/apparmor/rt $profile; apparmor_parser -r $profile"
	fi
fi
if [ "${MANIFEST:-}" != no ]; then
	# What an earlier version has installed and this one has not; its directories are still ours.
	grep '/$' "$old" >>"$new" || true
	grep -v '/$' "$old" | grep -vxF -f "$new" | while read -r path; do rm -f "$DESTDIR$path"; done || true
	sort -u "$new" >"$new.file"
	install -m 644 "$new.file" "$DESTDIR$manifest"
fi
