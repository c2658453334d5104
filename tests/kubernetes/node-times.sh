# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# node-times.sh: how long a pod takes from its creation to the first line of its program, with a
# claim and without. To be sourced by node-first.sh. Both times are of the machine's clock, in
# milliseconds or finer: when the apiserver has taken the pod, and when containerd read the line.
# Pods of the two kinds take turns, so that what else the machine does is the same for both.
: "${PAIRS:=3}"

# milliseconds TIME: since 1970, of a time such as 2026-11-29T22:00:00.123456Z
milliseconds() {
	part=${1#*.}
	part=$(printf '%.3s' "${part%Z}000")
	echo $((($(date -u -D %Y-%m-%dT%H:%M:%S -d "${1%.*}" +%s) - 1) * 1000 + 1$part))
}
# Now, in that form: `date` knows whole seconds only, a file more.
now() { touch "$out/now" && TZ=UTC stat -c %y "$out/now" | sed 's/ /T/; s/ .*/Z/'; }
# The moment of the first line.
began() { sed -n '1s/ .*//p' "/var/log/pods/default_$1_"*/main/0.log | grep .; }
# started POD [GIB]: it starts. Leaves in `took` how many milliseconds it needed.
started() {
	pod "$1" "echo started; exec /busybox sleep infinity" "${2:-}" || return 1
	created=$(now)
	in_time began "$1" &&
		took=$(($(milliseconds "$(began "$1")") - $(milliseconds "$created")))
}
# One of each kind; the other one comes first the next time.
pair() {
	if [ $(($1 % 2)) = 0 ]; then
		started "plain-$1" && echo "$took" >>"$out/without" &&
			started "claim-$1" 1 && echo "$took" >>"$out/with"
	else
		started "claim-$1" 1 && echo "$took" >>"$out/with" &&
			started "plain-$1" && echo "$took" >>"$out/without"
	fi
}
pairs() {
	names=
	n=0
	PAUSE=0.5
	while [ "$n" -lt "$PAIRS" ]; do
		pair "$n" || return 1
		names="$names plain-$n claim-$n"
		n=$((n + 1))
		if [ $((n % 5)) = 0 ] || [ "$n" = "$PAIRS" ]; then
			# shellcheck disable=SC2086  # names are words
			run kubectl delete pods $names --timeout=50m || return 1
			names=
		fi
	done
}
# Of the numbers on stdin.
summary() {
	sort -n | awk '{ v[NR] = $1 }
		function at(part) { p = 1 + part * (NR - 1); l = int(p)
			return v[l] + (p - l) * (v[l < NR ? l + 1 : l] - v[l]) }
		END { printf "median %d, half of them %d to %d, all %d to %d (%d pods)\n",
			at(.5), at(.25), at(.75), v[1], v[NR], NR }'
}
# The kubelet's own measurements name no pod, so the difference of two looks tells.
kubelet_figures() {
	kubectl get --raw /api/v1/nodes/node/proxy/metrics >"$out/$1"
}
# spent FIGURE CALL LOOK: how many such calls there were until then, and their milliseconds. Fails
# without such a figure.
spent() {
	awk -v sum="$1_sum{" -v count="$1_count{" -v call="$2" '
		index($1, sum) == 1 && index($1, call) { ms += $2 * 1000 }
		index($1, count) == 1 && index($1, call) { calls += $2; there = 1 }
		END { if (!there) exit 1; printf "%d %.0f\n", calls, ms }' "$out/$3"
}
# prepared FIGURE CALL: the calls between the looks, if there was one for each pod with a claim.
prepared() {
	first=$(spent "$1" "$2" earlier) && last=$(spent "$1" "$2" later) || return 1
	calls=$((${last% *} - ${first% *})) ms=$((${last#* } - ${first#* }))
	[ "$calls" -ge "$PAIRS" ] &&
		echo "ms in $1 of $2: $ms in $calls calls" >>"$out/of-kubelet"
}
check "the kubelet tells its figures" in_time kubelet_figures earlier
check "pods without a claim and with one start in turns" pairs
PAUSE=2
check "and again" in_time kubelet_figures later
check "they have the time of all pods' claims" \
	prepared dra_operations_duration_seconds PrepareResources
check "and that of the driver's calls" \
	prepared dra_grpc_operations_duration_seconds NodePrepareResources
cat "$out/of-kubelet"
for kind in with without; do
	echo "ms from a pod's creation to its program, $kind a claim: $(summary <"$out/$kind")"
	echo "each, in order: $(tr '\n' ' ' <"$out/$kind")"
done
