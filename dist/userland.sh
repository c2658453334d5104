# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# userland.sh: the files that are installed beside the module, for install.sh and package.sh. To be
# sourced.
#
# userland BUILT PREFIX: calls `file FROM TO MODE` for each. BUILT has $programs; what is made with
# them (manual pages, completions) goes there, too. The documents are always in $pages_root, because
# messages of the programs name it.

programs=(cgpuctl cgpu-hook cgpu-runtime)

pages_root=/usr/share/doc/cgpu

# The documents, the dashboard and the alerts, in the folders of the tree, so that links from one to
# another lead somewhere. A line for each would hide those of the other files.
documents() {
	local tree=$1 page
	while IFS= read -r page; do
		file "$tree/$page" "$pages_root/$page" 644 >/dev/null
	done < <(cd "$tree" && find -- *.md docs dist/grafana dist/prometheus \
		\( -name '*.md' -o -name '*.svg' -o -path 'dist/*' \) -type f | sort)
	say "installed the documents in $pages_root"
}

userland() {
	local built=$1 prefix=$2 dist page share
	dist=$(dirname "${BASH_SOURCE[0]}")
	# The folder of Debian's own packages, or the one for local files, which is searched as well.
	share=$prefix/share
	mkdir -p "$built/made/man"
	"$built/cgpuctl" man --to-folder "$built/made/man" >/dev/null
	"$built/cgpuctl" completions bash >"$built/made/cgpuctl"
	"$built/cgpuctl" completions zsh >"$built/made/_cgpuctl"
	"$built/cgpuctl" completions fish >"$built/made/cgpuctl.fish"
	local from
	for from in "$dist"/cgpu.rules "$dist"/cgpu.service "$dist"/hooks/*.json; do
		sed "s,@SBIN@,$prefix/sbin,g" "$from" >"$built/made/$(basename "$from")"
	done

	local program
	for program in "${programs[@]}"; do
		file "$built/$program" "$prefix/sbin/$program" 755
	done
	file "$dist/preflight.sh" "$prefix/sbin/cgpu-preflight" 755
	documents "$(dirname "$dist")"
	for page in "$built"/made/man/*.8; do
		file "$page" "$share/man/man8/$(basename "$page")" 644
	done
	file "$built/made/cgpuctl" "$share/bash-completion/completions/cgpuctl" 644
	if [ "$prefix" = /usr ]; then
		file "$built/made/_cgpuctl" "$share/zsh/vendor-completions/_cgpuctl" 644
		file "$built/made/cgpuctl.fish" "$share/fish/vendor_completions.d/cgpuctl.fish" 644
	else
		file "$built/made/_cgpuctl" "$share/zsh/site-functions/_cgpuctl" 644
		file "$built/made/cgpuctl.fish" "$share/fish/vendor_completions.d/cgpuctl.fish" 644
	fi
	file "$built/made/cgpu.rules" "$prefix/lib/udev/rules.d/71-cgpu.rules" 644
	file "$built/made/cgpu.service" "$prefix/lib/systemd/system/cgpu.service" 644
	# The only folder in which podman and CRI-O look unless told otherwise.
	for from in "$dist"/hooks/*.json; do
		file "$built/made/$(basename "$from")" \
			"/usr/share/containers/oci/hooks.d/$(basename "$from")" 644
	done
}
