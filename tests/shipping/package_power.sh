#!/bin/sh
# Power fails while dpkg installs packages for `fieldagent update`, and those before again: the update,
# dpkg, its scripts and the agent are killed at each state that dpkg tells, on a minimal Debian:
#   tests/shipping/package_power.sh NOW WORKS UNWELL [EVERY]
# versions in the signed repository in /srv/with. EVERY 3 takes each third state.
set -eu
. tests/shipping/kit.sh
now=$1 works=$2 unwell=$3 every=${4:-1}
kept=$(mktemp -d)
cut=$(mktemp -d)

# dpkg tells this its states, one a line; at the one that is named, all of the update ends. Half of
# them give a script, which may just have begun, a moment more.
cat >"$cut/cut" <<END
#!/bin/sh
while read -r line; do
    echo "\$line" >>$cut/states
    told=\$(grep -c . $cut/states)
    [ "\$told" = "\$(cat $cut/at)" ] || continue
    [ \$((told % 2)) = 0 ] || sleep 0.4
    kill -9 0
done
END
chmod 755 "$cut/cut"

ended() {
    # shellcheck disable=SC2034
    read -r _ _ process _ 2>/dev/null <"/proc/$(cat /tmp/fieldagent-update.service.pid)/stat" || return 0
    [ "$process" = Z ]
}

until_ended() {
    while ! ended; do sleep 0.1; done
}

# prepare VERSION MINUTES: keeps a kit on which the update to it has begun, and has no step behind it
prepare() {
    printf '#!/bin/sh\n' >"$kept/systemctl"
    chmod 755 "$kept/systemctl"
    # `update` asks systemd for its unit, and then looks on until somebody ends it.
    PATH=$kept:$PATH timeout 60 fieldagent update --within "$2" --steady 0.1 "$1" 2>"$kept/told" &
    looking=$!
    until [ -e $trial ]; do
        kill -0 $looking || fail "$(cat "$kept/told")"
        sleep 0.1
    done
    kill -INT $looking
    wait $looking || true
    systemctl stop fieldagent.service
    rm -rf "$kept/state" "$kept/update"
    cp -a $state "$kept/state"
    cp -a $state-update "$kept/update"
    kill -9 $looking 2>/dev/null || true
}

# put_back: the kit as `prepare` has kept it
put_back() {
    systemctl stop fieldagent.service
    if [ "$(dpkg-query -W -f '${Version}' fieldagent)" != "$now" ]; then
        dpkg -i /srv/with/fieldagent-common_"${now}"_all.deb /srv/with/fieldagent_"${now}"_all.deb >/dev/null 2>&1
    fi
    rm -rf $state $state-update
    cp -a "$kept/state" $state
    cp -a "$kept/update" $state-update
    systemctl start fieldagent.service
    rm -f "$cut/states"
}

# cut_at STATE: of dpkg, counted from 1; then the kit starts again, until the update has ended
cut_at() {
    put_back
    echo "$1" >"$cut/at"
    echo "status-logger=$cut/cut" >/etc/dpkg/dpkg.cfg.d/cut
    systemctl start fieldagent-update.service
    until_ended
    rm /etc/dpkg/dpkg.cfg.d/cut
    [ "$1" = 0 ] || kill -9 "$(cat /tmp/fieldagent.service.pid)" 2>/dev/null || true
    fieldagent --version >/dev/null || fail "cut at $1, the command does not start"
    systemctl start fieldagent.service
    systemctl start fieldagent-update.service
    until_ended
}

# power VERSION MINUTES ENDS: cut at each state of dpkg, the kit runs ENDS
power() {
    prepare "$1" "$2"
    cut_at 0
    runs "$3"
    states=$(grep -c . "$cut/states")
    echo "dpkg told $states states"
    cp "$cut/states" "$kept/states"
    for at in $(seq 1 "$every" "$states"); do
        cut_at "$at"
        echo "cut at $at: $(sed -n "${at}p" "$kept/states")"
        runs "$3"
        [ "$(journal_version)" = "$4" ] || fail "the journal is of $(journal_version), and not $4"
    done
    put_back
    rm -rf $state-update
}

clean
start "$now"
before=$(journal_version)

step "one that is not well: in either direction"
power "$unwell" 0.15 "$now" "$before"

step "one that works"
power "$works" 3 "$works" $((before + 1))

clean
rm -rf "$kept" "$cut"
step "done"
