# SPDX-License-Identifier: Apache-2.0
# packages.sh - the Debian packages that pytreefs needs, and how to get those that are missing.
#
# Sourced by tools/quickstart (packages_build and packages_tour) and tests/run (all of them). Asks dpkg first, so that a
# machine that has everything needs neither root nor a network.
# shellcheck shell=bash

# To build it and run it.
packages_build=(
	gcc libc6-dev meson ninja-build pkg-config
	fuse3 libfuse3-dev liburing-dev libmd-dev libcjson-dev libmsgpack-dev libpcre2-dev
	libisal-dev libzstd-dev libblosc-dev libseccomp-dev libcurl4-openssl-dev libssl-dev libexpat1-dev zlib1g-dev liblz4-dev libbz2-dev
)
# To look around as docs/tour.md does.
packages_tour=(attr less python3-numpy)
# To run one mount per host as one job.
packages_mpi=(libopenmpi-dev openmpi-bin)
# To test it.
packages_test=(
	libcmocka-dev g++ clang clang-format libclang-rt-14-dev valgrind strace fio attr less rsync restic tar
	e2fsprogs xfsprogs btrfs-progs bindfs dmsetup rclone s3fs spin
	python3 python3-venv python3-dev git groff-base gcovr nginx-light openssl
)
# To make its Debian packages (tools/deb, Containerfile), beside what debian/control asks for.
packages_deb=(dpkg-dev git)
# To look at its pages as a browser does; large, and not built for every processor.
packages_browser=(chromium)

# packages_missing NAME...: those that are not installed, one a line.
packages_missing() {
	local have
	have=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p')
	local name
	for name in "$@"; do
		grep -qxF "$name" <<<"$have" || echo "$name"
	done
}

# packages_want NAME...: install what is missing; says what it does. Fails with the list when it cannot.
packages_want() {
	if ! command -v dpkg-query >/dev/null; then
		echo "no dpkg here: these Debian packages, or what your system calls them, are needed: $*" >&2
		return 0
	fi
	local missing
	mapfile -t missing < <(packages_missing "$@")
	[ ${#missing[@]} -gt 0 ] || return 0
	local as_root=()
	if [ "$(id -u)" -ne 0 ]; then
		if ! command -v sudo >/dev/null; then
			echo "missing packages; as root: apt-get install ${missing[*]}" >&2
			return 1
		fi
		as_root=(sudo)
	fi
	echo "installing: ${missing[*]}"
	"${as_root[@]}" apt-get update -qq || echo "apt-get update failed, trying with the lists at hand" >&2
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
		"${missing[@]}" >/dev/null || {
		echo "cannot install: ${missing[*]}" >&2
		return 1
	}
}
