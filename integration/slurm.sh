#!/bin/bash
# The battery on a cluster of the Slurm that is installed, which Debian's packages are if there is none.
# usage: integration/slurm.sh RT (root)
set -uo pipefail
rt=$(realpath "${1:-build/rt}") || exit 1
cd "$(dirname "$0")/slurm"
. ../tap
[ "$(id -u)" = 0 ] || skip_all "only root can start slurmd"
../packages munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins busybox-static python3
for program in slurmctld slurmd munged srun busybox; do
	command -v $program >/dev/null || skip_all "$program is not installed"
done
export CLUSTER_DIR=${CLUSTER_DIR:-/tmp/rt-slurm-$$} RT_USER=${RT_USER:-rtslurm} STEPS=${STEPS:-100}
id "$RT_USER" >/dev/null 2>&1 || { useradd -M -d /nonexistent "$RT_USER" && made=yes; }
trap './cluster down; [ -z "${made:-}" ] || userdel "$RT_USER"; rm -rf "$CLUSTER_DIR"' EXIT
constrains() {
	local controller
	for controller in cpuset memory devices freezer; do [ -d /sys/fs/cgroup/$controller ] || return 1; done
}
# Twice: with more CPUs than there are, and with task/cgroup, which holds jobs to those that there are.
for CONSTRAIN in no yes; do
	export CONSTRAIN
	if [ $CONSTRAIN = yes ] && ! constrains; then
		skip limits "no cpuset, memory, devices and freezer of cgroup v1"
		continue
	fi
	./cluster up || exit 1
	for program in rt rt-pull rt-image; do
		[ ! -x "${rt%/*}/$program" ] || install -m 755 "${rt%/*}/$program" "$CLUSTER_DIR/$program"
	done
	./cluster oci "$CLUSTER_DIR/rt"
	if [ $CONSTRAIN = no ]; then
		include battery ./battery "$CLUSTER_DIR/rt"
		OCI=oci-images.conf ./cluster oci "$CLUSTER_DIR/rt"
		include images ./images "$CLUSTER_DIR/rt"
	else
		include limits ./limits "$CLUSTER_DIR/rt"
	fi
	./cluster down
done
done_testing
