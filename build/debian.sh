# For scripts that get something of another Debian: . build/debian.sh
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

fail() {
    echo "${0##*/}: $1" >&2
    exit 1
}

# cannot WHY: it is this machine that does not allow it
cannot() {
    echo "${0##*/}: $1" >&2
    exit 77
}

# cached NAME: the folder where NAME is kept from one run to the next
cached() {
    echo "${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/fieldagent/$1"
}

# find_mirror: sets `mirror` to the one that this machine uses itself
find_mirror() {
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
        cannot "this needs Debian's apt-get and dpkg-deb"
    [ -r "$keyring" ] || cannot "$keyring is missing: apt-get install debian-archive-keyring"
    mirror=$(apt-get indextargets --format '$(SITE)' 'Identifier: Packages' | grep -m 1 '/debian/*$') ||
        cannot "no Debian mirror is among this machine's apt sources: add one, then run this again"
}

# emulate ARCHITECTURE: that this machine starts its programs, as Debian's own package would have it
# at the next start (binfmt.d(5)); those of its own need nothing
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
