#!/bin/sh
# Java for Spark: takes what JAVA_HOME or PATH has, else installs it through apt where it may.
#     tools/need-java.sh PYTHON
# Status 1 and one line that says what to install where it may not.
set -eu
cd "$(dirname "$0")/.."

python=$1
find_java() { "$python" -m logstore.spark.java; }

install_java() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || return 1
    printf 'no Java 17 or newer; installing one\n' >&2
    apt-get update -qq >/dev/null 2>&1 || true
    for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" >/dev/null 2>&1 && return 0
    done
    return 1
}

find_java >/dev/null 2>&1 || install_java || true
find_java >/dev/null
