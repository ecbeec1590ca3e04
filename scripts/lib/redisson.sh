# shellcheck shell=bash
# Sourced after redis.sh: the worker of the torture run that is Redisson in a JVM (examples/torture/java).

# The JVM starts sooner, and leaves some of the machine to others.
JVM='-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx128m -Xlog:disable'

# Builds it in this folder, and prints the program that starts it.
redisson_worker() {
    local home=$1 offline
    have javac && have mvn || die 'a JDK and Maven are missing: install the packages default-jdk-headless and maven'
    mkdir -p "$home/classes"
    for offline in --offline ''; do
        # shellcheck disable=SC2086 # a word, or nothing
        ! mvn --quiet --batch-mode $offline -f tests/redisson/java package "-Dpeer.target=$home/peer" >"$scratch/mvn.log" 2>&1 || break
    done
    [ -e "$home/peer/redisson-peer.jar" ] || die "Redisson cannot be fetched:
$(tail -n 20 "$scratch/mvn.log")"
    javac --release 17 -encoding UTF-8 -cp "$home/peer/lib/*" -d "$home/classes" examples/torture/java/*.java
    jar --create --file "$home/worker.jar" -C "$home/classes" .
    local run="exec java $JVM -XX:SharedArchiveFile=$home/classes.jsa -cp '$home/worker.jar:$home/peer/lib/*'"
    printf '#!/bin/sh\n%s parklock.torture.Main "$@"\n' "$run" >"$home/worker"
    chmod +x "$home/worker"
    archive_classes "$home"
    printf '%s\n' "$home/worker"
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
