#!/bin/sh
# `fieldagent update` of Debian packages, on a minimal Debian, from the signed repository in /srv/with:
#   tests/shipping/package_update.sh NOW WORKS UNWELL BROKEN
# the versions there: what the kit has, one that works, one whose agent is not well, one that dpkg
# cannot configure. The two between have a later journal.
set -eu
. tests/shipping/kit.sh
now=$1 works=$2 unwell=$3 broken=$4
told=$(as_told "$now")

# update CODE TEXT ARGUMENTS...: it ends so, and says so
update() {
    code=0
    wanted=$1 text=$2
    shift 2
    fieldagent update --within 3 --steady 0.1 "$@" >/tmp/told 2>&1 || code=$?
    cat /tmp/told
    [ $code = "$wanted" ] || fail "it ended with $code"
    grep -q "$text" /tmp/told || fail "it does not say: $text"
}

# what an interrupted run left
clean

step "a kit of $now"
start "$now"

step "without the packages for the way back nothing is changed"
mv "/srv/with/fieldagent_${now}_all.deb" /tmp/
update 65 "The rollback needs them" "$unwell"
mv "/tmp/fieldagent_${now}_all.deb" /srv/with/
runs "$now"

step "what apt does not know is refused"
update 65 "apt cannot fetch 7.7.7" 7.7.7

step "one that is not well gives way to the one before, with its journal"
before=$(journal_version)
update 1 "$unwell did not work, and $told runs again: no agent answers" "$unwell" --within 0.15
runs "$now"
[ "$(journal_version)" = "$before" ] || fail "the journal is of $(journal_version), and not $before"

step "one that dpkg cannot configure does too"
update 1 "$broken did not work, and $told runs again: dpkg cannot install it" "$broken"
runs "$now"

step "the newest that apt knows, though the packages are held"
apt-mark hold fieldagent fieldagent-common >/dev/null
update 0 "$works runs (before: $told)"
runs "$works"
[ "$(journal_version)" -gt "$before" ] || fail "the journal is of $(journal_version) still"

step "there is none newer"
update 65 "apt has nothing newer than $works"
update 65 "$told is older than $works" "$now"

clean
[ ! -e /var/lib/fieldagent-update ] || fail "purged, and something is left"
step "done"
