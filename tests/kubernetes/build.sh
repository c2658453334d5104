#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# build.sh: builds a control plane of Kubernetes (etcd, kube-apiserver, kube-scheduler,
# kube-controller-manager), kubelet, kubectl and helm out of the Go module proxy, and prints the
# folder of its programs. The modules are pinned by go.mod and go.sum beside this file; what was
# built is kept in the cache of the tests until one of them, the flags or Go changes. The first
# build takes ten minutes or more.
#
#   KUBERNETES=VERSION   that one (v1.37.2), whose modules Go's checksum database vouches for
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/cgpu

PATH=$("$here/go.sh"):$PATH
# Everything that a program depends on is in the key of its cache.
export GOTOOLCHAIN=local CGO_ENABLED=0 GOWORK=off GOFLAGS="-mod=readonly -buildvcs=false"
pinned=$(sed -n 's,^require k8s.io/kubernetes \(v[0-9.]*\).*,\1,p' "$here/components/go.mod")
version=${KUBERNETES:-$pinned}
minor=${version#v1.}
minor=${minor%%.*}
plain=(-p 2 -trimpath)
tags=(-tags selinux,notest,grpcnotrace)
flags="-s -w"
# Without these a component says that it is of no version, which kubelet and apiserver compare.
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	for pair in gitVersion="$version" gitMajor=1 gitMinor="$minor" gitTreeState=clean \
		gitCommit=unknown buildDate=1970-01-01T00:00:00Z; do
		flags+=" -X $package.$pair"
	done
done
components=(kube-scheduler kube-controller-manager kube-apiserver kubelet kubectl)
key=$({
	echo "${components[@]}" "$GOFLAGS" "${plain[@]}" "${tags[@]}" "$flags"
	cat "$here"/components/go.* "$here"/etcd/go.* "$here"/helm/go.*
	go version
} | sha256sum | cut -c1-12)
out=$cache/kubernetes-$key
mkdir -p "$cache"
exec 9>"$out.lock"
flock 9
if [ -e "$out/complete" ]; then
	echo "$out"
	exit 0
fi
work=$out.tmp
rm -rf "$work"
mkdir -p "$work"

modules=$here/components
sums="readonly"
if [ "$version" != "$pinned" ]; then
	modules=$work.modules
	sums=mod
	mkdir -p "$modules"
	trap 'rm -rf "$modules"' EXIT
	# Its libraries have the version v0.MINOR.PATCH.
	sed "s/${pinned//./\\.}/$version/; s/${pinned/#v1./v0\\.}/${version/#v1./v0.}/" \
		"$here/components/go.mod" >"$modules/go.mod"
fi
say() { echo "== kubernetes: $*" >&2; }
for name in "${components[@]}"; do
	say "building $name $version"
	(cd "$modules" && nice -n 10 go build -mod="$sums" "${plain[@]}" "${tags[@]}" \
		-ldflags "$flags" -o "$work/$name" "k8s.io/kubernetes/cmd/$name") >&2
done
say "building etcd"
(cd "$here/etcd" && nice -n 10 go build "${plain[@]}" -ldflags "-s -w" -o "$work/etcd" \
	go.etcd.io/etcd/server/v3) >&2
say "building helm"
(cd "$here/helm" && nice -n 10 go build "${plain[@]}" -ldflags "-s -w" -o "$work/helm" \
	helm.sh/helm/v3/cmd/helm) >&2
touch "$work/complete"
rm -rf "$out"
mv "$work" "$out"
echo "$out"
