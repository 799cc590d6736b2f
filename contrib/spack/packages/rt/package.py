# Copyright The authors of rt
#
# SPDX-License-Identifier: Apache-2.0
"""rt for Spack: `spack repo add CHECKOUT/contrib/spack`, then `spack install rt`."""

import os

from spack.package import *

try:
    # Spack 1.0 has moved the build systems into the repository of packages.
    from spack_repo.builtin.build_systems.makefile import MakefilePackage
except ImportError:
    pass


class Rt(MakefilePackage):
    """OCI container runtime for HPC clusters: no root, one user id, no cgroup writes."""

    # The repository that this file is part of: what is installed is a commit of it.
    git = "file://" + os.path.abspath(os.path.join(os.path.dirname(__file__), "../../../.."))

    license("Apache-2.0")

    version("main", branch="main", get_full_repo=True)

    depends_on("c", type="build")
    depends_on("rust@1.89:", type="build")
    depends_on("gmake", type="build")

    conflicts("platform=darwin", msg="rt is for Linux")

    def setup_build_environment(self, env):
        # Crates are fetched anew for each build, so that no state of the user's counts.
        env.set("CARGO_HOME", os.path.join(self.stage.path, "cargo"))

    def install(self, spec, prefix):
        # The profile for AppArmor is root's to install: it is in share/rt/apparmor.
        make("install", f"PREFIX={prefix}", "MANIFEST=no")

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_version(self):
        Executable(self.prefix.bin.rt)("--version")
