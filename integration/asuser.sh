#!/usr/bin/env bash
# Builds this package's tests and the command into a world-readable directory and
# runs them as an ordinary user: integration/asuser.sh USER [test flags].
set -euo pipefail
user=${1:?usage: asuser.sh USER [test flags]}
shift
here=$(cd "$(dirname "$0")" && pwd)
room=$(mktemp -d /var/tmp/cellblock-asuser-XXXXXX)
trap 'rm -rf "$room"' EXIT
chmod 755 "$room"
mkdir -p "$room/integration" "$room/home"
(cd "$here" && go test -c -o "$room/integration/integration.test" .)
(cd "$here" && go build -o "$room/" ../cmd/cellblock ../cmd/cellblock-rego ../cmd/cellblock-serve)
cp -r "$here/testdata" "$room/integration/"
cp "$here/../README.md" "$here/../Makefile" "$room/"
chown -R "$user" "$room/home" "$room/integration"
cd "$room/integration"
status=0
setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups env -i HOME="$room/home" \
	PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 CELLBLOCK_BIN="$room/cellblock" \
	JAIL_TEST_REQUIRE="${JAIL_TEST_REQUIRE:-}" ./integration.test "$@" || status=$?
# A run with -update leaves its golden files where the tree has them.
for flag in "$@"; do
	if [ "$flag" = -update ]; then cp -r testdata/. "$here/testdata/"; fi
done
exit $status
