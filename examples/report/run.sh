#!/bin/sh
# The main example from nothing: builds skillcell and the guest, runs the guest on real data, prints the report.
# Run it as often as you like: what is there already is not made again. Arguments go to `skillcell run`.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"
target=${CARGO_TARGET_DIR:-$root/target}
say() { printf 'report: %s\n' "$*" >&2; }

if ! command -v cargo >/dev/null 2>&1; then
    if [ -x "$HOME/.cargo/bin/cargo" ]; then
        PATH="$HOME/.cargo/bin:$PATH"
    else
        say "no cargo; install Rust with rustup (https://rustup.rs), then run this again"
        exit 1
    fi
fi

# A linker for the host, and a compiler for guests unless the toolchain in use has one.
sh "$root/tests/debian-packages" guests

say "building skillcell (the first time takes some minutes)"
cargo build --release --locked --package skillcell --package skillcell-wasm-tools

guest="$target/guests/report.wasm"
say "building the guest"
SKILLCELL_GUEST_CACHE=${SKILLCELL_GUEST_CACHE:-$target/guest-cache} \
    "$target/release/skillcell-wasm-tools" build "$here" --locked --out "$guest" >/dev/null

out="$target/report"
rm -rf "$out"
say "running it on data/debian12-packages.csv"
"$target/release/skillcell" run "$guest" --in "$here/data/debian12-packages.csv" --out "$out" "$@"
say "results: $out"
cat "$out/report.md"
