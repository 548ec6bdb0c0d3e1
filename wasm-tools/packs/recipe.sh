# What the recipes of all packs share; their build.sh reads it first.
#
#   build.sh INPUTS WORK
#
# INPUTS holds the files named in the pack's inputs.json; `skillcell-wasm-tools pack build` fetches them by package name,
# checks their digests, calls the script and makes the snapshot afterwards. Results go to WORK/out.
#
# Sets INPUTS, WORK and HERE (the pack's folder), and settings under which every build gives the same bytes.
set -euo pipefail

INPUTS=$(realpath "$1")
mkdir -p "$2"
WORK=$(realpath "$2")
HERE=$(dirname "$(realpath "$0")")

export LC_ALL=C TZ=UTC
# The release date of the first pack's source, for everything that would ask what day it is.
export SOURCE_DATE_EPOCH=1786406400
export ZIG_GLOBAL_CACHE_DIR=$WORK/zig-cache ZIG_LOCAL_CACHE_DIR=$WORK/zig-cache
ZIG=$WORK/zig/ziglang/zig

say() { echo "[$(date +%T)] $*"; }

# unpack_inputs: the compiler to WORK/zig, crates to WORK/crates.
unpack_inputs() {
    rm -rf "$WORK"/{zig,crates}
    mkdir -p "$WORK"/{zig,crates}
    unzip -q "$INPUTS"/ziglang-*.whl -d "$WORK/zig"
    chmod +x "$ZIG"
    local crate
    for crate in "$INPUTS"/*.crate; do tar -xzf "$crate" -C "$WORK/crates"; done
}

# stage NAME [FILE...]: runs the function stage_NAME unless it has run to its end with the same function text, the same
# FILEs, the same settings (variable SETTINGS) and the same stages before it.
KEY=
stage() {
    local name=$1
    shift
    KEY=$({ echo "$KEY ${SETTINGS:-}"; declare -f "stage_$name" unpack_inputs; cat "$HERE/inputs.json" "$@"; } | sha256sum | cut -d' ' -f1)
    if [ "$(cat "$WORK/stage.$name" 2>/dev/null)" = "$KEY" ]; then
        say "$name: kept"
        return
    fi
    say "$name"
    rm -f "$WORK/stage.$name"
    (set -euo pipefail; "stage_$name") > "$WORK/log.$name" 2>&1 || {
        tail -40 "$WORK/log.$name" >&2
        say "$name failed; the whole log is $WORK/log.$name" >&2
        exit 1
    }
    echo "$KEY" > "$WORK/stage.$name"
}
