#!/bin/sh
# Takes the driver that the node has given, or that of the package of compatibility.
ldconfig -p | grep -q 'libcuda\.so\.1' || export LD_LIBRARY_PATH=/usr/local/cuda/compat${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec "$@"
