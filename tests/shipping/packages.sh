#!/bin/sh
# The life of the Debian packages on a minimal Debian, from the signed repository in /srv/with.
set -eu
. tests/shipping/kit.sh
wanted=/etc/systemd/system/multi-user.target.wants/fieldagent.service

# An interrupted run may have left packages, and files that dpkg was just unpacking.
clean
rm -rf /usr/lib/fieldagent

step "a list that was changed is refused"
cp -R /srv/with /srv/changed
printf '\n' >>/srv/changed/Packages
rm /srv/changed/Packages.gz
echo "deb [signed-by=/srv/with/fieldagent.gpg] file:/srv/changed ./" >"$list"
! apt-get -qq update 2>/tmp/told || fail "it was not refused"
cat /tmp/told
grep -q "Hash Sum mismatch" /tmp/told || fail "it was refused for something else"
rm -rf /srv/changed

step "installed from the repository"
echo "deb [signed-by=/srv/with/fieldagent.gpg] file:/srv/with ./" >"$list"
apt-get -qq update
apt-get -qq --no-install-recommends install fieldagent fieldagent-hub >/dev/null
tag=$(python3 -c 'import sys; print(sys.implementation.cache_tag)')
[ -d "/usr/lib/fieldagent/$tag/trio" ] || fail "nothing was compiled for $tag"
[ "$(stat -c '%a %U:%G' $settings)" = "640 root:fieldagent" ] || fail "who reads the settings?"
fieldagent --version
[ -e $wanted ] || fail "the unit is not enabled"

step "the agent runs as its user, from what was compiled"
printf 'api-port=%s\nsatellite-port=/dev/nobody\n' $port >>$settings
install -d -o fieldagent -g fieldagent -m 700 /var/lib/fieldagent
started=$(mktemp)
STATE_DIRECTORY=/var/lib/fieldagent setpriv --reuid=fieldagent --regid=fieldagent --clear-groups \
    python3 -v /usr/lib/fieldagent run --config $settings >/dev/null 2>"$started" &
agent=$!
trap 'kill "$agent" 2>/dev/null || true' EXIT
until_answers
fieldagent status --port $port
grep -q "/usr/lib/fieldagent/$tag/fieldagent/agent/agent.pyc" "$started" || fail "it ran from its sources"
fieldagent send message --port $port --no-wait "hello" || fail "nothing was accepted"
kill "$agent"
wait "$agent" || true

step "an update keeps settings and queue, and a unit that was disabled stays so"
systemctl --quiet --root / disable fieldagent.service
apt-get -qq --reinstall install fieldagent fieldagent-common >/dev/null
grep -q api-port=$port $settings || fail "the settings are gone"
[ ! -e $wanted ] || fail "it was enabled again"

step "only the hub's own user reads the hub's settings"
[ "$(stat -c '%a %U:%G' /etc/fieldagent/hub.properties)" = "640 root:fieldagent-hub" ] || fail "who reads the hub's settings?"

step "another Python compiles it anew"
rm -rf "/usr/lib/fieldagent/$tag"
dpkg-trigger --by-package=python3-minimal /usr/bin/python3
dpkg --configure --pending
[ -d "/usr/lib/fieldagent/$tag/trio" ] || fail "it was not compiled"

step "power that fails while it is compiled leaves all of it, or none"
compiled() {
    find /usr/lib/fieldagent/cpython-* -name '*.pyc' 2>/dev/null | wc -l
}
whole=$(compiled)
[ "$whole" -gt 300 ] || fail "only $whole files were compiled"
for instant in 0.1 0.5 1 2 3; do
    timeout -s KILL $instant sh /var/lib/dpkg/info/fieldagent-common.postinst triggered || true
    found=$(compiled)
    [ "$found" = 0 ] || [ "$found" = "$whole" ] || fail "$found of $whole after $instant seconds"
    fieldagent --version
done
sh /var/lib/dpkg/info/fieldagent-common.postinst triggered
[ "$(compiled)" = "$whole" ] || fail "it was not compiled again"
[ -z "$(find /usr/lib/fieldagent -maxdepth 1 -name '*.new' -o -maxdepth 1 -name 'gone.*')" ] || fail "something is left over"

step "removed, no unit runs on, settings and journal stay; purged, nothing does"
units=$(dpkg -L fieldagent fieldagent-hub | sed -n 's|^/usr/lib/systemd/system/||p')
[ "$(echo "$units" | grep -c '\.path$')" -gt 2 ] || fail "what waits for files is not among the units"
mkdir -p /run/systemd/system
printf '#!/bin/sh\necho "$@" >>/tmp/asked\n' >/usr/local/bin/systemctl
chmod 755 /usr/local/bin/systemctl
rm -f /tmp/asked
# Its own search path has no /usr/local.
apt-get -qq -o DPkg::Path="$PATH" remove fieldagent fieldagent-hub fieldagent-common >/dev/null
rm /usr/local/bin/systemctl
rmdir /run/systemd/system
cat /tmp/asked
for unit in $units; do
    grep -w stop /tmp/asked | grep -qwF "$unit" || fail "$unit is left running"
done
[ -e $settings ] || fail "the settings are gone"
[ -s /var/lib/fieldagent/journal.sqlite3 ] || fail "the journal is gone"
[ ! -e /usr/lib/fieldagent ] || fail "left: $(find /usr/lib/fieldagent -not -type d | head -3)"
masked() {
    find /etc/systemd/system -lname /dev/null -name 'fieldagent*' | sort | xargs -n1 basename
}
masked
[ "$(masked | wc -l)" = 3 ] || fail "removed, and a unit may still start"
apt-get -qq --no-install-recommends install fieldagent fieldagent-hub >/dev/null
[ "$(find /etc/systemd/system -lname /dev/null | wc -l)" = 0 ] || fail "masked still: $(masked)"
grep -q api-port=$port $settings || fail "the settings are gone"
clean
[ ! -e /usr/bin/fieldagent ] || fail "the command is left"
step "done"
