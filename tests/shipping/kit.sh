# A kit with our packages on a minimal Debian, for scripts that run there: . tests/shipping/kit.sh
# systemd alone is stood in for: what a unit's file says is started, and stopped.
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
# Of this run alone: a list that an interrupted one leaves in apt's own folder fails all that come after.
parts=$(mktemp -d)
list=$parts/fieldagent.list
APT_CONFIG=$(mktemp)
export APT_CONFIG
printf 'Dir::Etc::SourceParts "%s";\n' "$parts" >"$APT_CONFIG"
settings=/etc/fieldagent/agent.properties
# Another Debian may run on this machine, and shares its network. Below those that systems give away.
port=$((20000 + $(od -An -N2 -tu2 /dev/urandom) % 10000))
state=/var/lib/fieldagent
trial=/var/lib/fieldagent-update/trial.json

step() {
    echo "== $1"
}

fail() {
    echo "FAILED: $1" >&2
    [ ! -e /tmp/kit.log ] || tail -40 /tmp/kit.log >&2
    exit 1
}

clean() {
    rm -f /etc/dpkg/dpkg.cfg.d/cut
    ! [ -e /usr/local/bin/systemctl ] || systemctl stop fieldagent.service
    dpkg --configure -a >/dev/null 2>&1 || true
    apt-get -qq purge fieldagent fieldagent-hub fieldagent-common >/dev/null 2>&1 || true
    rm -rf "$list" /var/lib/apt/lists/*srv_* /etc/fieldagent "$state" "$state-update" /var/lib/fieldagent-hub
    rm -rf /tmp/kit.log /tmp/*.pid
    rm -f /usr/local/bin/systemctl
}

put_systemctl() {
    cat >/usr/local/bin/systemctl <<'END'
#!/bin/sh
# What it is asked for of the agent and of its update; anything else is done already.
[ "$2" != --no-block ] || set -- "$1" "$3"
pids=/tmp/$2.pid
alive() {
    [ -e "$pids" ] && read -r _ _ state _ 2>/dev/null <"/proc/$(cat "$pids")/stat" && [ "$state" != Z ]
}
case "$1 $2" in
"start fieldagent.service" | "start fieldagent-update.service")
    ! alive || exit 0
    unit=/usr/lib/systemd/system/$2
    command=$(sed -n 's/^ExecStart=//p' "$unit")
    user=$(sed -n 's/^User=//p' "$unit")
    [ -z "$user" ] || command="setpriv --reuid=$user --regid=$user --clear-groups $command"
    folder=$(sed -n 's|^StateDirectory=|/var/lib/|p' "$unit")
    [ -z "$folder" ] || command="env STATE_DIRECTORY=$folder $command"
    setsid $command </dev/null >>/tmp/kit.log 2>&1 &
    echo $! >"$pids"
    ;;
"stop fieldagent.service")
    ! alive || kill "$(cat "$pids")"
    while alive; do sleep 0.05; done
    ;;
esac
END
    chmod 755 /usr/local/bin/systemctl
    # Debian's, which may have been asked, does nothing here.
    hash -r
}

# start VERSION: a kit of that version at work, with a message that waits for its modem
start() {
    echo "deb [signed-by=/srv/with/fieldagent.gpg] file:/srv/with ./" >"$list"
    apt-get -qq update
    apt-get -qq --no-install-recommends install "fieldagent=$1" "fieldagent-common=$1" >/dev/null
    printf 'api-port=%s\nsatellite-port=/dev/nobody\n' $port >>$settings
    install -d -o fieldagent -g fieldagent -m 700 $state
    put_systemctl
    systemctl start fieldagent.service
    until_answers
    fieldagent send message --port $port --no-wait "hello" || fail "nothing was accepted"
}

until_answers() {
    for _ in $(seq 300); do
        ! fieldagent status --port $port >/dev/null 2>&1 || return 0
        sleep 0.3
    done
    fail "no agent answers"
}

journal_version() {
    python3 -c "import sqlite3; print(*sqlite3.connect('$state/journal.sqlite3').execute('PRAGMA user_version').fetchone())"
}

# as_told VERSION: dpkg's version of a package, as its program writes it
as_told() {
    echo "$1" | sed 's/~dev/.dev/'
}

# runs VERSION: program and packages are of it, whole; its agent answers, and has the message still
runs() {
    until_answers
    for package in fieldagent-common fieldagent; do
        found=$(dpkg-query -W -f '${Version} ${db:Status-Abbrev}' $package)
        [ "$found" = "$1 ii " ] || fail "$package is $found, and not $1"
    done
    [ -z "$(dpkg --audit)" ] || fail "dpkg has not ended: $(dpkg --audit)"
    [ -z "$(dpkg --verify fieldagent fieldagent-common)" ] || fail "files of another version are left"
    named=$(as_told "$1")
    [ "$(fieldagent --version)" = "fieldagent $named" ] || fail "the command is $(fieldagent --version)"
    fieldagent status --port $port --json | grep -q "\"version\": *\"$named\"" || fail "the agent is not $named"
    fieldagent queue --port $port | grep -q Satellite || fail "the message is gone"
    [ ! -e $trial ] || fail "it is under way still"
}
