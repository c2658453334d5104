#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# proxy-test.sh: the block of docs/metrics.md for nginx, in Debian's nginx, in a Debian folder. A
# server of two pages is in the place of `cgpuctl metrics`. A client gets the figures if the
# authority has signed its certificate, and nothing else.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../vm/lib.sh
. "$(dirname "$0")/../vm/lib.sh"

base=$("$CGPU_TREE/tests/vm/kernel-env.sh")
work=$(mktemp -d "$CGPU_CACHE/proxy-XXXXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root
link_folder "$base" "$root"
step "nginx of Debian"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
log "$work/apt.log" in_root "$root" -- apt-get update
log "$work/apt.log" in_root "$root" -- env DEBIAN_FRONTEND=noninteractive \
	apt-get install -y --no-install-recommends nginx-light openssl curl
sed -n '/^server {$/,/^}$/p' "$CGPU_TREE/docs/metrics.md" >"$root/etc/nginx/conf.d/cgpu.conf"
[ -s "$root/etc/nginx/conf.d/cgpu.conf" ] || die "docs/metrics.md has no block of nginx"
rm -f "$root/etc/nginx/sites-enabled/default"

cat >"$root/opt/session" <<'END'
set -euo pipefail
busybox ip link set lo up
cd /opt
mkdir -p page /etc/cgpu/tls
echo "cgpu_info 1" >page/metrics
key() { openssl req -newkey rsa:2048 -nodes -keyout "$1.key" -subj "/CN=$2" "${@:3}" 2>/dev/null; }
key server localhost -x509 -out server.crt -addext subjectAltName=DNS:localhost
key ca prometheus-ca -x509 -out prometheus-ca.crt
key other-ca other-ca -x509 -out other-ca.crt
for client in prometheus:ca stranger:other-ca; do
	signed=${client#*:}
	key "${client%:*}" "${client%:*}" -out client.csr
	openssl x509 -req -in client.csr -CAkey "$signed.key" -CAcreateserial -days 1 \
		-CA "$(ls "$signed.crt" "prometheus-$signed.crt" 2>/dev/null)" \
		-out "${client%:*}.crt" 2>/dev/null
done
cp server.crt server.key prometheus-ca.crt /etc/cgpu/tls/
nginx -t >&2 && echo "ok nginx takes the block"
busybox httpd -f -p 127.0.0.1:9400 -h page &
nginx
ask() { # ask PAGE [CLIENT]: the code of the answer, with a certificate of this client
	curl --silent --output said --write-out '%{http_code}' --cacert server.crt \
		${2:+--cert "$2.crt" --key "$2.key"} "https://localhost:9443$1"
}
[ "$(ask /metrics prometheus)" = 200 ] && grep -qx "cgpu_info 1" said &&
	echo "ok the authority's client gets the figures"
[ "$(ask /metrics)" = 400 ] && echo "ok a client without a certificate does not"
[ "$(ask /metrics stranger)" = 400 ] && echo "ok nor one of another authority"
echo secret >page/other
[ "$(ask /other prometheus)" = 404 ] && echo "ok no other page is passed on"
nginx -s stop
kill %1
END
log "$work/said" in_root "$root" -- unshare --net bash /opt/session
grep -v '^ok ' "$work/said" >&2 || :
grep '^ok ' "$work/said" | tally proxy "$(grep -c 'echo "ok ' "$root/opt/session")"
