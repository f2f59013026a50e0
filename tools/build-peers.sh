#!/bin/sh
# Builds what `python -m benchmarks peers` measures this log beside, into benchmarks/peers/bin: Kafka,
# NATS and etcd at pinned versions, and a load for each. Takes a JDK, Maven and Go from PATH, installs
# a missing one through apt where it may. What is there and not older than its inputs stays.
#     tools/build-peers.sh
# A peer that cannot be built is told with the reason, which bin/PEER.missing keeps for the
# measurement, so that it does not take what an older build left; the others are built all the same.
# Status 1 if none could be built.
set -eu
cd "$(dirname "$0")/../benchmarks/peers"
programs=$PWD/programs
bin=$PWD/bin
mkdir -p "$bin"

say() { printf '%s\n' "$*" >&2; }

has() { command -v "$1" >/dev/null 2>&1; }

install_packages() {
    [ "$(id -u)" = 0 ] && has apt-get || return 1
    say "installing $*"
    apt-get update -qq >/dev/null 2>&1 || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null 2>&1
}

need_jdk() {
    has javac || install_packages openjdk-17-jdk-headless || install_packages default-jdk-headless || true
    major=$(javac -version 2>/dev/null | sed 's/^javac \([0-9]*\).*/\1/')
    [ "${major:-0}" -ge 17 ] && return 0
    reason="needs a JDK 17 or newer (Debian, Ubuntu: apt-get install openjdk-17-jdk-headless)"
    return 1
}

need_maven() {
    has mvn || install_packages maven || true
    has mvn && return 0
    reason="needs Maven (Debian, Ubuntu: apt-get install maven)"
    return 1
}

# Go 1.21 and newer fetch the toolchain that go.mod asks for, unless GOTOOLCHAIN forbids it.
need_go() {
    has go || install_packages golang-go || true
    minor=$(go env GOVERSION 2>/dev/null | sed 's/^go1\.\([0-9]*\).*/\1/')
    [ "${minor:-0}" -ge 26 ] && return 0
    [ "${minor:-0}" -ge 21 ] && export GOTOOLCHAIN=auto && return 0
    reason="needs Go 1.26 or newer, or 1.21 and newer that may fetch it"
    return 1
}

# is_current PRODUCT INPUT_FOLDER...
is_current() {
    product=$1
    shift
    [ -e "$product" ] && [ -z "$(find "$@" -type f -newer "$product" | head -n 1)" ]
}

# go_build NAME FOLDER PACKAGE
go_build() {
    is_current "$bin/$1" "$programs/$2" "$programs/offer" && return 0
    need_go || return 1
    say "building $1"
    rm -f "$bin/$1"
    reason="$1 could not be built; see the messages above"
    (cd "$programs/$2" && go build -trimpath -o "$bin/$1" "$3" >&2)
}

build_kafka() {
    is_current "$bin/kafka/.complete" "$programs/kafka" && return 0
    need_jdk && need_maven || return 1
    say "fetching Kafka"
    rm -rf "$bin/kafka" "$bin/kafka-load"
    reason="Maven could not fetch Kafka; see the messages above"
    mvn --quiet --batch-mode -Dstyle.color=never --file "$programs/kafka/pom.xml" dependency:copy-dependencies \
        -DoutputDirectory="$bin/kafka" -DincludeScope=runtime >&2 || return 1
    reason="KafkaLoad could not be compiled; see the messages above"
    javac -d "$bin/kafka-load" -cp "$bin/kafka/*" "$programs/kafka/KafkaLoad.java" >&2 || return 1
    touch "$bin/kafka/.complete"
}

build_nats() {
    go_build nats-server nats-server github.com/nats-io/nats-server/v2 && go_build natsload nats .
}

build_etcd() {
    go_build etcd etcd go.etcd.io/etcd/server/v3 && go_build etcdload etcd .
}

built=0
for peer in kafka nats etcd; do
    reason=
    if "build_$peer"; then
        rm -f "$bin/$peer.missing"
        built=$((built + 1))
    else
        say "$peer is missing: $reason"
        printf '%s\n' "$reason" >"$bin/$peer.missing"
    fi
done
[ "$built" -gt 0 ]
