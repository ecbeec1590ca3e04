# shellcheck shell=bash
# Sourced after redis.sh: the worker of the torture run that is Redisson in a JVM (examples/torture/java).

# The JVM starts sooner, and leaves some of the machine to others.
JVM='-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx128m -Xlog:disable'

worker='' # the program that starts it

# Builds it in this folder. Nothing here may run in a subshell: whatever fails has to end the script, and an interrupt has to find the
# server.
redisson_worker() {
    local home=$1
    have javac && have mvn || die 'a JDK and Maven are missing: install the packages default-jdk-headless and maven'
    redisson_itself "$home/peer"
    # Whatever is left of an earlier build says nothing about these sources.
    if ! is_built "$home"; then
        rm -rf "$home/classes" "$home/worker.jar"
        mkdir -p "$home/classes"
        javac --release 17 -encoding UTF-8 -cp "$home/peer/lib/*" -d "$home/classes" examples/torture/java/*.java ||
            die 'the worker in Java does not compile'
        jar --create --file "$home/worker.jar" -C "$home/classes" . || die 'the worker in Java cannot be packed'
    fi
    local run="exec java $JVM -XX:SharedArchiveFile=$home/classes.jsa -cp '$home/worker.jar:$home/peer/lib/*'"
    printf '#!/bin/sh\n%s parklock.torture.Main "$@"\n' "$run" >"$home/worker"
    chmod +x "$home/worker"
    archive_classes "$home"
    worker=$home/worker
}

# Its archive of classes is of use only for as long as the jar stays as it is.
is_built() {
    local home=$1
    [ -e "$home/worker.jar" ] && [ -z "$(find examples/torture/java "$home/peer/lib" -newer "$home/worker.jar")" ]
}

# Redisson and what it needs, at best without asking anybody.
redisson_itself() {
    local peer=$1 offline
    for offline in --offline ''; do
        # shellcheck disable=SC2086 # a word, or nothing
        ! mvn --quiet --batch-mode $offline -f tests/redisson/java package "-Dpeer.target=$peer" >"$scratch/mvn.log" 2>&1 || return 0
    done
    die "Redisson cannot be fetched:
$(tail -n 20 "$scratch/mvn.log")"
}

# With an archive of its loaded classes it starts in half the time. Without one it loads them.
archive_classes() {
    local home=$1 url
    [ ! "$home/classes.jsa" -nt "$home/worker.jar" ] || return 0
    start_redis url
    # shellcheck disable=SC2086 # words
    sleep 3 | java $JVM "-XX:ArchiveClassesAtExit=$home/classes.jsa" -cp "$home/worker.jar:$home/peer/lib/*" parklock.torture.Main \
        --worker archive --url "$url" --seed 1 --started 0 --record /dev/null >/dev/null 2>&1 || true
    stop_redis
}
