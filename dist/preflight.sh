#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# cgpu-preflight [--report]: looks at this host for all that may keep the module from being built
# or loaded, or a container from its GPU. It reports everything at once, and changes nothing. It
# exits with 1 if something must be changed first.
#
#   --report         prints a line for each thing, for programs: `lack` or `warn`, the subject, how
#                    it is, and what to do, with a tab between them
#
# The package runs it after its installation, and `cgpuctl doctor` each time. In cgpu's source it is
# dist/preflight.sh, and install.sh takes its checks from there. Such a script says what `report`
# does with STATE SUBJECT FOUND FIX.
set -euo pipefail

# The folder with this machine's /proc and /sys. Tests name that of another machine.
host=${CGPU_INSTALL_HOST:-}
# The folder of the documents.
pages=/usr/share/doc/cgpu/docs

reaches() { # reaches VERSION OTHER: whether a version of two numbers is OTHER or later
	((${1%.*} * 1000 + ${1#*.} >= ${2%.*} * 1000 + ${2#*.}))
}

headers_are_there() { # headers_are_there RELEASE HEADERS [AFTERWARDS]
	[ ! -e "$2/Makefile" ] || return 0
	report lack headers "no headers of kernel $1 ($2)" \
		"install linux-headers-$1 (Fedora, RHEL: kernel-devel-$1)${3:-}"
	return 1
}

# kernel_is_fit SCRIPT HEADERS EXPORTS: SCRIPT is supported.sh.
kernel_is_fit() {
	local why
	why=$("$1" "$2" "$3" 2>&1) ||
		report lack kernel "${why#cgpu: }" "boot another kernel ($pages/install.md)"
}

# The compiler for the module, which is that of the kernel: an older one may not know the options
# that the kernel's Makefile passes. DKMS does the same.
# shellcheck disable=SC2034  # install.sh takes it
compiler=gcc
choose_compiler() { # choose_compiler RELEASE HEADERS
	local named wanted has
	named=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ ]*gcc[^ ]*\) .*/\1/p' "$2/.config" 2>/dev/null || :)
	[ -n "$named" ] || return 0
	if command -v "$named" >/dev/null; then
		# shellcheck disable=SC2034
		compiler=$named
		return
	fi
	# The same gcc by another name, or a newer one, will do.
	wanted=$(sed -n 's/^CONFIG_GCC_VERSION=\([0-9]*\)[0-9]\{4\}$/\1/p' "$2/.config")
	has=$(gcc -dumpversion 2>/dev/null || :)
	has=${has%%.*}
	[ -z "$has" ] || [ "$has" -ge "${wanted:-0}" ] ||
		report lack compiler "no $named, which has built kernel $1, and gcc is of version $has" \
			"install it (Debian, Ubuntu: apt install gcc-$wanted)"
}

series_of() { # series_of RELEASE: its first two numbers
	sed -n 's/^\([0-9]*\.[0-9]*\).*/\1/p' <<<"$1"
}

# Before Linux 6.10 the module protects calls with ftrace.
ftrace_is_on() { # ftrace_is_on RELEASE
	local series
	series=$(series_of "$1")
	if [ -z "$series" ] || reaches "$series" 6.10; then return 0; fi
	! grep -qsx 0 "$host/proc/sys/kernel/ftrace_enabled" ||
		report lack ftrace "kernel.ftrace_enabled is 0, and before Linux 6.10 the module needs 1" \
			"sysctl kernel.ftrace_enabled=1"
}

no_other_module() {
	[ ! -e "$host/proc/cgpu_km/inst_ctl" ] ||
		report lack module "Alibaba's cGPU is loaded, whose module is called cgpu_km too" \
			"stop and remove it first"
}

is_loaded() { grep -qs '^cgpu_km ' "$host/proc/modules"; }

secure_boot_is_on() {
	local variable
	for variable in "$host"/sys/firmware/efi/efivars/SecureBoot-*; do
		[ -e "$variable" ] || continue
		# The last byte of the variable is its value.
		[ "$(tail -c 1 "$variable" | od -An -tu1 | tr -d ' ')" = 1 ] && return 0
	done
	return 1
}

driver_is_fit() {
	local version branch hold driver=$host/proc/driver/nvidia/version
	if [ ! -e "$driver" ]; then
		report warn driver "the NVIDIA driver is not loaded" \
			"cgpu_km loads all the same, and finds the GPUs when the driver is loaded"
		return
	fi
	if ! grep -q "Open Kernel Module" "$driver"; then
		report lack driver "the NVIDIA driver's kernel modules are the proprietary ones" \
			"install the open ones of the same branch ($pages/install.md)"
		return
	fi
	version=$(sed -n 's/.*Open Kernel Module for [^ ]*  *\([0-9]*\.[0-9]*\).*/\1/p' "$driver")
	branch=${version%.*}
	case $branch in
	535)
		# As `oldest_minor` in cgpu_km/nvidia/version.rs.
		reaches "$version" 535.86 ||
			report warn driver "the NVIDIA driver is $version, and no instance is made without \
tables for it. Those of branch 535 begin with 535.86" \
				"install a newer release of the branch ($pages/install.md)"
		return
		;;
	550 | 570 | 580 | 595) return ;;
	esac
	hold="s/ 580\.[0-9.]*-.*//p"
	report warn driver "the NVIDIA driver is of branch ${branch:-unknown}, and no instance is made \
without tables for it. 535, 550, 570, 580 and 595 have tables" "install one of them, and hold it:
    apt install nvidia-open-580
    apt-mark hold \$(dpkg-query -W -f '\${Package} \${Version}\\n' | sed -n '$hold')
    (names in other repositories are in $pages/install.md)"
}

docker_has_cdi_off() { # docker_has_cdi_off VERSION
	local settings=/etc/docker/daemon.json
	# 28.2 is the first in which CDI is on by itself.
	if reaches "$1" 28.2; then
		grep -qs '"cdi" *: *false' "$settings"
	else
		! grep -qs '"cdi" *: *true' "$settings"
	fi
}

# Things that stop no installation but may stop a container afterwards. docs/install.md has a
# chapter on each.
containers_are_fit() {
	local version cdi='"features": {"cdi": true}'
	if [ "$(getenforce 2>/dev/null)" = Enforcing ]; then
		report warn SELinux "SELinux is in force, and cgpu has no policy for it" \
			"if a container is denied its nodes, \`ausearch -m avc -ts recent\` names the rule"
	fi
	# A program of a driver that hangs would wait without end.
	if timeout 20 nvidia-smi --query-gpu=mig.mode.current --format=csv 2>/dev/null |
		grep Enabled >/dev/null; then
		report warn MIG "a GPU is in MIG mode, which was not tried" "nvidia-smi -mig 0 ends it"
	fi
	version=$(podman --version 2>/dev/null |
		sed -n 's/.*version v\?\([0-9]*\.[0-9]*\).*/\1/p' || :)
	if [ -n "$version" ] && ! reaches "$version" 4.1; then
		report warn podman "podman $version has no CDI" \
			"give it what \`cgpuctl inst mounts\` prints, or take another engine"
	fi
	version=$(dockerd --version 2>/dev/null |
		sed -n 's/.*version v\?\([0-9]*\.[0-9]*\)\..*/\1/p' || :)
	if [ -n "$version" ] && ! reaches "$version" 25.0; then
		report warn docker "docker $version has no CDI" \
			"give it what \`cgpuctl inst mounts\` prints"
	elif [ -n "$version" ] && docker_has_cdi_off "$version"; then
		report warn docker "docker $version has CDI switched off" \
			"set $cdi in /etc/docker/daemon.json, and restart docker, which may stop containers"
	fi
	version=$(containerd --version 2>/dev/null | sed -n 's/.* v\?\([0-9]*\)\.[0-9].*/\1/p' || :)
	if [ "$version" = 1 ] && ! grep -qs '^ *enable_cdi *= *true' /etc/containerd/config.toml; then
		report warn containerd "containerd 1 has CDI switched off for Kubernetes" \
			"set enable_cdi = true in /etc/containerd/config.toml"
	fi
}

# ---- the rest is for the program, not for install.sh
[ "${BASH_SOURCE[0]}" = "$0" ] || return 0

# Whether the firmware knows the key with which DKMS signs.
key_is_enrolled() { # key_is_enrolled KEY
	LC_ALL=C mokutil --test-key "$1" 2>/dev/null | grep 'already enrolled' >/dev/null
}

# A kernel for which the module is built needs nothing more for that.
module_is_fit() { # module_is_fit RELEASE
	local headers=/lib/modules/$1/build script own exports
	[ -z "$(find "/lib/modules/$1" -name 'cgpu_km.ko*' 2>/dev/null)" ] || return 0
	headers_are_there "$1" "$headers" ", then run dkms autoinstall" || return 0
	choose_compiler "$1" "$headers"
	own=$(cd "$(dirname "$0")" && pwd -P)
	for script in "$own/supported.sh" /usr/src/cgpu-*/supported.sh; do
		[ -x "$script" ] || continue
		exports=$own/../target/object/exports
		[ "$script" = "$own/supported.sh" ] || exports=${script%/*}/exports
		# Without an object the rest of the kernel can be looked at.
		[ -r "$exports" ] || exports=/dev/null
		kernel_is_fit "$script" "$headers" "$exports"
		return
	done
}

key_is_fit() {
	local key=
	if is_loaded || ! secure_boot_is_on; then return 0; fi
	for key in /var/lib/shim-signed/mok/MOK.der /var/lib/dkms/mok.pub; do
		[ ! -e "$key" ] || break
	done
	key_is_enrolled "$key" ||
		report lack "Secure Boot" "Secure Boot is on, and takes only modules signed with a key that it knows" \
			"mokutil --import $key, which is the key of DKMS, then reboot ($pages/install.md)"
}

reported=0 lacking=0
note() {
	reported=$((reported + 1))
	[ "$1" = warn ] || lacking=$((lacking + 1))
}
case $#:${1:-} in
0:)
	report() { # report STATE SUBJECT FOUND FIX
		local word=
		[ "$1" = lack ] || word="warning: "
		printf 'cgpu-preflight: %s%s; %s\n' "$word" "$3" "$4"
		note "$1"
	}
	;;
1:--report)
	report() {
		printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$(printf '%s' "$4" | tr -s '\n ' ' ')"
		note "$1"
	}
	;;
1:--help | 1:-h)
	sed -n '3,/^$/s/^# \{0,1\}//p' "$0"
	exit 0
	;;
*)
	echo "cgpu-preflight: unknown option: $* (see --help)" >&2
	exit 2
	;;
esac
release=$(uname -r)
module_is_fit "$release"
ftrace_is_on "$release"
no_other_module
key_is_fit
driver_is_fit
containers_are_fit
[ "$reported" != 0 ] || [ $# != 0 ] || echo "cgpu-preflight: nothing stands in the way"
[ "$lacking" = 0 ]
