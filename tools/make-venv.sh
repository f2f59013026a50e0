#!/bin/sh
# Makes a virtual environment with everything pinned in the constraints files and this project in
# editable mode.
#     tools/make-venv.sh FOLDER EXTRAS CONSTRAINTS...
# Safe to run again: a half-made folder is thrown away, a whole one is brought up to date.
set -eu
cd "$(dirname "$0")/.."

venv=$1
extras=$2
shift 2
pinned=
for file in "$@"; do pinned="$pinned -r $file"; done
pins=$(printf '%s' "$pinned" | sed 's/ -r / -c /g')
error=$venv-error

say() { printf '%s\n' "$*" >&2; }

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 \
        /usr/bin/python3 /usr/bin/python3.13 /usr/bin/python3.12 /usr/bin/python3.11; do
        if is_new_enough "$candidate"; then
            printf '%s' "$candidate"
            return 0
        fi
    done
    return 1
}

has_pip() { "$venv/bin/python" -m pip --version >/dev/null 2>&1; }

create() {
    rm -rf "$venv"
    "$python" -m venv "$venv" >"$error" 2>&1 && has_pip && rm -f "$error"
}

install_venv_package() {
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "python$version cannot make a virtual environment; installing python$version-venv"
        apt-get update -qq >/dev/null 2>&1 || true
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "python$version-venv" >/dev/null ||
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null
    else
        return 1
    fi
}

python=$(find_python) || {
    say "No Python >= 3.11 found. Install one (Debian, Ubuntu: apt-get install python3 python3-venv)"
    say "or name it: make $venv PYTHON=/path/to/python3"
    exit 1
}

if ! { [ -x "$venv/bin/python" ] && is_new_enough "$venv/bin/python" && has_pip; }; then
    if ! create && ! { install_venv_package && create; }; then
        cat "$error" >&2 || true
        rm -rf "$venv" "$error"
        say "$python could not make $venv. Install its venv package, as root:"
        say "    apt-get install python3-venv"
        exit 1
    fi
fi

attempt=1
# shellcheck disable=SC2086 # a list of options
until "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
    --retries 5 $pinned; do
    if [ "$attempt" -ge 3 ]; then
        say "Installing the pinned packages failed three times; see the messages above."
        exit 1
    fi
    attempt=$((attempt + 1))
    say "Trying again ($attempt of 3)"
done
# The build backend is installed by now, so building the editable install fetches nothing.
# shellcheck disable=SC2086 # a list of options
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
    --no-build-isolation $pins -e ".[$extras]"
touch "$venv/.complete"
