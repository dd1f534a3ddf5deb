# Functions for scripts that download packages of another Debian: . build/debian.sh
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

fail() {
    echo "${0##*/}: $1" >&2
    exit 1
}

# cannot REASON: ends the script with code 77, because this machine cannot do the work
cannot() {
    echo "${0##*/}: $1" >&2
    exit 77
}

# cached NAME: prints the folder that keeps NAME between runs
cached() {
    echo "${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/fieldagent/$1"
}

# find_mirror: sets `mirror` to the Debian mirror that this machine uses
find_mirror() {
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
        cannot "this needs Debian's apt-get and dpkg-deb"
    [ -r "$keyring" ] || cannot "$keyring is missing: apt-get install debian-archive-keyring"
    mirror=$(apt-get indextargets --format '$(SITE)' 'Identifier: Packages' | grep -m 1 '/debian/*$') ||
        cannot "no Debian mirror is among this machine's apt sources: add one, then run this again"
}

# emulate ARCHITECTURE: makes this machine run programs of that architecture. Debian's package would
# set this up at the next boot (binfmt.d(5)). The machine's own architecture needs no emulator.
emulate() {
    [ "$1" != "$(dpkg --print-architecture)" ] || return 0
    formats=/proc/sys/fs/binfmt_misc
    format=/usr/lib/binfmt.d/$emulator.conf
    [ -r "$format" ] || cannot "programs of $1 need $emulator: apt-get install qemu-user-static"
    [ -e $formats/register ] || mount -t binfmt_misc binfmt_misc $formats ||
        cannot "programs of $1 cannot be started: this kernel has no binfmt_misc to mount"
    [ -e "$formats/$emulator" ] || cat "$format" >$formats/register ||
        cannot "programs of $1 cannot be started: $formats takes no $emulator"
}
