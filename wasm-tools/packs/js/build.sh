#!/bin/bash
# Builds the JavaScript interpreter for WASI out of pinned inputs: INPUTS -> WORK/out/js.wasm.
#
#   build.sh INPUTS WORK
#
# Needed on the host: bash, coreutils, tar, unzip. See ../recipe.sh.
# shellcheck source=../recipe.sh
. "$(dirname "$(realpath "$0")")/../recipe.sh"

# The order in which the prelude is evaluated: a file can only need what comes before it.
PRELUDE="start errors types inspect events event_target performance path buffer encoding querystring url loop compare util stream
    process fs console crypto assert os readline zlib clone absent modules main"

# Every path of this machine becomes /b or /f in what the compiler writes.
FLAGS="-O2 -w -g0 -DNDEBUG -D_GNU_SOURCE -ffile-prefix-map=$WORK=/b -ffile-prefix-map=$HERE=/f -D_WASI_EMULATED_SIGNAL"

SETTINGS="$FLAGS $PRELUDE"

cc() { "$ZIG" cc -target wasm32-wasi -fno-sanitize=undefined "$@"; }

stage_unpack() {
    unpack_inputs
    mkdir -p "$WORK"/{obj,out}
    mv "$WORK"/crates/rquickjs-sys-*/quickjs "$WORK/crates/quickjs"
    mv "$WORK"/crates/libz-sys-*/src/zlib "$WORK/crates/zlib"
}

stage_libraries() {
    local file
    cd "$WORK/crates/zlib"
    for file in adler32 crc32 deflate inffast inflate inftrees trees zutil; do
        cc $FLAGS -DHAVE_UNISTD_H -DHAVE_HIDDEN -c $file.c -o "$WORK/obj/z_$file.o"
    done
    cd "$WORK/crates/quickjs"
    for file in dtoa libregexp libunicode; do
        cc $FLAGS $([ $file = libregexp ] && echo -I "$HERE/guest" -include regexp_frame.h) -I . -c $file.c -o "$WORK/obj/q_$file.o"
    done
}

stage_engine() {
    cd "$WORK"
    # The one change to a source: see engine.c. Another version that lacks the line must not go unnoticed.
    rm -rf obj/quickjs
    mkdir obj/quickjs
    sed 's/^    err = js_parse_program(s);$/    err = parse_with_less_stack(s);/' crates/quickjs/quickjs.c > obj/quickjs/quickjs.c
    [ "$(grep -c parse_with_less_stack obj/quickjs/quickjs.c)" = 1 ]
    cc $FLAGS -I obj/quickjs -I crates/quickjs -c "$HERE/guest/engine.c" -o obj/engine.o
}

stage_guest() {
    local file name
    cd "$WORK"
    # The text of the prelude goes in as it is; it is compiled while the snapshot is made.
    {
        for name in $PRELUDE; do
            echo "static const unsigned char prelude_$name[] = {"
            echo "#embed \"$HERE/prelude/$name.js\""
            echo "};"
        done
        echo "static const struct { const char *name, *short_name; const unsigned char *text; unsigned long length; } prelude_files[] = {"
        for name in $PRELUDE; do
            echo "    {\"skillcell:$name\", \"$name\", prelude_$name, sizeof prelude_$name},"
        done
        echo "};"
    } > obj/prelude.h
    for file in bytes compress digest entry files inspect types; do
        cc $FLAGS -I crates/quickjs -I crates/zlib -I obj -c "$HERE/guest/$file.c" -o "obj/guest_$file.o"
    done
    # The stack is at the bottom of the memory, so that running over it traps instead of overwriting data.
    cc -O2 -s -mexec-model=reactor -z stack-size=2097152 -Wl,--initial-memory=16777216 \
        obj/guest_*.o obj/engine.o obj/q_*.o obj/z_*.o rust/library.a -lwasi-emulated-signal -lm -o out/js.wasm
}

stage unpack
stage libraries "$HERE"/guest/*frame.h
stage engine "$HERE/guest/engine.c" "$HERE/guest/guest.h" "$HERE/guest/frame.h"
stage guest "$HERE"/guest/*.[ch] "$HERE"/prelude/*.js "$WORK/rust/library.a"
sha256sum "$WORK/out/js.wasm"
