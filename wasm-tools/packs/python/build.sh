#!/bin/bash
# Builds CPython for WASI out of pinned inputs: INPUTS -> WORK/out/python.wasm and WORK/out/python313.zip.
#
#   build.sh INPUTS WORK
#
# Nothing of the host's C library, compiler or Python gets into the result: the only compiler is the pinned one, also for
# the native Python that freezes modules and compiles the library.
#
# Needed on the host: bash, make, coreutils, sed, grep, awk, tar, xz, unzip. See ../recipe.sh.
#
# The native Python is half of the time, so a second build of a changed guest takes less than a minute.
# shellcheck source=../recipe.sh
. "$(dirname "$(realpath "$0")")/../recipe.sh"

JOBS=${JOBS:-2}
HOST_ARCH=$(uname -m)

PYTHON=3.13.15
SHORT=python3.13
ZIP=python313.zip

export PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1
# configure must find the libraries of the recipe and no others.
export PKG_CONFIG=false PKG_CONFIG_LIBDIR=/nonexistent

LIBS=$WORK/libs
# Every path of this machine becomes /b in what the compiler writes.
WASI_FLAGS="-w -g0 -ffile-prefix-map=$WORK=/b -ffile-prefix-map=$HERE=/f"

stage_unpack() {
    unpack_inputs
    rm -rf "$WORK"/{src,bin}
    mkdir -p "$WORK/bin"
    tar -xJf "$INPUTS/python3.13_$PYTHON.orig.tar.xz" -C "$WORK"
    mv "$WORK/Python-$PYTHON" "$WORK/src"

    cat > "$WORK/bin/native-cc" <<EOF
#!/bin/sh
exec $ZIG cc -target $HOST_ARCH-linux-musl -fno-sanitize=undefined "\$@"
EOF
    # The stack is put first by this linker anyway, and it refuses the flag that asks for it.
    cat > "$WORK/bin/wasi-cc" <<EOF
#!/bin/bash
arguments=()
for argument in "\$@"; do
    [ "\$argument" = -Wl,--stack-first ] || arguments+=("\$argument")
done
exec $ZIG cc -target wasm32-wasi -fno-sanitize=undefined "\${arguments[@]}"
EOF
    printf '#!/bin/sh\nexec %s ar "$@"\n' "$ZIG" > "$WORK/bin/ar"
    printf '#!/bin/sh\nexec %s ranlib "$@"\n' "$ZIG" > "$WORK/bin/ranlib"
    chmod +x "$WORK"/bin/*
}

# A Python of the same version for this machine: it freezes the start-up modules and compiles the library. It has
# only what that takes, all built in.
stage_native() {
    rm -rf "$WORK/native"
    mkdir "$WORK/native"
    cd "$WORK/native"
    local off="" module
    for module in _decimal pyexpat _elementtree _codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp _codecs_kr _codecs_tw \
        _multibytecodec _sqlite3 _curses _curses_panel readline _ctypes _dbm _gdbm _uuid nis ossaudiodev _lzma _bz2 \
        _ssl _hashlib _tkinter; do
        off="$off py_cv_module_$module=n/a"
    done
    # shellcheck disable=SC2086
    CC=$WORK/bin/native-cc AR=$WORK/bin/ar RANLIB=$WORK/bin/ranlib MODULE_BUILDTYPE=static CFLAGS="-O1 -g0 -w" \
        ../src/configure -q --without-ensurepip --disable-test-modules $off
    make -j"$JOBS" CFLAGS="-O1 -g0 -w" OPT= python
}

# object FILE NAME FLAGS...: one object of a C library.
object() {
    # shellcheck disable=SC2086
    "$WORK/bin/wasi-cc" -O2 -DNDEBUG $WASI_FLAGS -c "$1" -o "$LIBS/obj/$2" "${@:3}"
}

stage_libraries() {
    rm -rf "$LIBS"
    mkdir -p "$LIBS"/{include/lzma,lib,obj}
    local file name

    cd "$WORK"/crates/libz-sys-*/src/zlib
    for file in adler32 compress crc32 deflate gzclose gzlib gzread gzwrite infback inffast inflate inftrees trees \
        uncompr zutil; do
        object $file.c z_$file.o -DHAVE_UNISTD_H -DHAVE_HIDDEN
    done
    cp zlib.h zconf.h "$LIBS/include"

    cd "$WORK"/crates/bzip2-sys-*/bzip2-*
    for file in blocksort bzlib compress crctable decompress huffman randtable; do
        object $file.c bz2_$file.o -D_FILE_OFFSET_BITS=64
    done
    cp bzlib.h "$LIBS/include"

    # The crate's own config.h and shims, less the sources that only make tables or need threads.
    cd "$WORK"/crates/liblzma-sys-*/
    for file in xz/src/liblzma/{check,common,delta,lz,lzma,rangecoder,simple}/*.c \
        xz/src/common/tuklib_{cpucores,physmem}.c; do
        name=$(basename "$file" .c)
        case $name in *_small | *tablegen | *consts_gen | *_mt | outqueue) continue ;; esac
        object "$file" lzma_"$name".o -std=c99 -DHAVE_CONFIG_H=1 -I. -Ixz/src/common \
            -Ixz/src/liblzma/{api,check,common,delta,lz,lzma,rangecoder,simple}
    done
    cp xz/src/liblzma/api/lzma.h "$LIBS/include"
    cp xz/src/liblzma/api/lzma/*.h "$LIBS/include/lzma"

    # WASI has no shared memory (no WAL). Locks: see sqlite_fcntl in guest/reactor.c.
    cd "$WORK"/crates/libsqlite3-sys-*/sqlite3
    object sqlite3.c sqlite3_all.o -DSQLITE_THREADSAFE=0 -DSQLITE_OMIT_WAL -DSQLITE_OMIT_LOAD_EXTENSION \
        -DSQLITE_ENABLE_FTS5 -DSQLITE_ENABLE_RTREE -DSQLITE_ENABLE_MATH_FUNCTIONS -DSQLITE_ENABLE_COLUMN_METADATA \
        -DSQLITE_TEMP_STORE=2 -DLONGDOUBLE_TYPE=double \
        -D_WASI_EMULATED_MMAN -D_WASI_EMULATED_GETPID -D_WASI_EMULATED_PROCESS_CLOCKS
    cp sqlite3.h sqlite3ext.h "$LIBS/include"

    cd "$LIBS/obj"
    for name in z bz2 lzma sqlite3; do
        "$WORK/bin/ar" rcsD "$LIBS/lib/lib$name.a" ${name}_*.o
    done
}

stage_wasi() {
    rm -rf "$WORK/wasi"
    mkdir "$WORK/wasi"
    cd "$WORK/wasi"
    # "../src" and not a full path: the source folder is compiled into getpath.o.
    env CPYTHON_SRC="$WORK/src" CONFIG_SITE="$HERE/guest/config.site" \
        CC="$WORK/bin/wasi-cc" CPP="$WORK/bin/wasi-cc -E" CXX=false READELF=false HOSTRUNNER=false \
        AR="$WORK/bin/ar" RANLIB="$WORK/bin/ranlib" ARFLAGS=rcsD \
        CFLAGS="$WASI_FLAGS" CPPFLAGS="-I$LIBS/include" LDFLAGS="-L$LIBS/lib" \
        ZLIB_CFLAGS="-I$LIBS/include" ZLIB_LIBS="-L$LIBS/lib -lz" \
        BZIP2_CFLAGS="-I$LIBS/include" BZIP2_LIBS="-L$LIBS/lib -lbz2" \
        LIBLZMA_CFLAGS="-I$LIBS/include" LIBLZMA_LIBS="-L$LIBS/lib -llzma" \
        LIBSQLITE3_CFLAGS="-I$LIBS/include" LIBSQLITE3_LIBS="-L$LIBS/lib -lsqlite3 -lwasi-emulated-mman" \
        ../src/configure -q --host=wasm32-unknown-wasip1 --build="$HOST_ARCH-pc-linux-gnu" \
        --with-build-python="$WORK/native/python" --prefix=/usr/local --disable-test-modules --without-ensurepip
    # The program that make links here is thrown away; what stage_link brings is made up for it.
    cat > absent.c <<'EOF'
#include <sys/stat.h>
int skillcell_stat(const char *path, struct stat *found) { return -1; }
int skillcell_lstat(const char *path, struct stat *found) { return -1; }
int skillcell_mkdir(const char *path, mode_t mode) { return -1; }
double skillcell_log2(double number) { return number; }
EOF
    "$WORK/bin/wasi-cc" -c absent.c -o absent.o
    make -j"$JOBS" EXTRA_CFLAGS="-include $HERE/guest/libc.h" LINKFORSHARED="$WORK/wasi/absent.o" python.wasm
    # Writes the sysconfig data and then fails, since there is no way to run the result: the file is what counts.
    make pybuilddir.txt || true
    ls build/lib.*/_sysconfigdata*.py
}

stage_library() {
    mkdir -p "$WORK/out"
    rm -rf "$WORK/tzdata"
    unzip -q "$INPUTS"/tzdata-*.whl -d "$WORK/tzdata"
    "$WORK/native/python" -S "$HERE/make_library.py" --library "$WORK/src/Lib" --module "$HERE/guest/_skillcell_loop.py" \
        --tzdata "$WORK/tzdata/tzdata" --sysconfig "$(ls "$WORK"/wasi/build/lib.*/_sysconfigdata*.py)" \
        --output "$WORK/out/$ZIP"
}

stage_link() {
    cd "$WORK/wasi"
    mkdir -p "$WORK/link"
    "$WORK/native/python" -S -c 'import sys
source = open(sys.argv[1], "rb").read()
print("static const char BOOT_PY[] = {" + ",".join(map(str, source)) + ",0};")' "$HERE/guest/boot.py" > "$WORK/link/boot_py.h"
    # shellcheck disable=SC2086
    "$WORK/bin/wasi-cc" -O2 $WASI_FLAGS -DPy_BUILD_CORE_BUILTIN=1 -D_WASI_EMULATED_SIGNAL -D_WASI_EMULATED_GETPID \
        -D_WASI_EMULATED_PROCESS_CLOCKS -DSTDLIB_ZIP="L\"/usr/local/lib/$ZIP\"" \
        -I../src -I../src/Include -I../src/Include/internal -I. -I"$LIBS/include" -I"$WORK/link" \
        -c "$HERE/guest/reactor.c" -o "$WORK/link/reactor.o"
    # shellcheck disable=SC2086
    "$WORK/bin/wasi-cc" -O2 $WASI_FLAGS -c "$HERE/guest/paths.c" -o "$WORK/link/paths.o"
    # shellcheck disable=SC2086
    "$WORK/bin/wasi-cc" -O2 $WASI_FLAGS -c "$HERE/guest/numbers.c" -o "$WORK/link/numbers.o"
    # paths.o comes first: once something asks for chdir, the linker takes the C library's.
    "$WORK/bin/wasi-cc" -O2 -s -mexec-model=reactor -z stack-size=8388608 -Wl,--initial-memory=20971520 \
        "$WORK/link/paths.o" "$WORK/link/numbers.o" "$WORK/link/reactor.o" lib$SHORT.a \
        Modules/_hacl/*.a Modules/expat/libexpat.a Modules/_decimal/libmpdec/libmpdec.a \
        -L"$LIBS/lib" -lsqlite3 -lz -lbz2 -llzma \
        -lwasi-emulated-signal -lwasi-emulated-getpid -lwasi-emulated-process-clocks -lwasi-emulated-mman -lm \
        -o "$WORK/out/python.wasm"
}

stage unpack
stage native
stage libraries
stage wasi "$HERE/guest/config.site" "$HERE/guest/libc.h"
[ "${STOP_AFTER:-}" = wasi ] && exit 0
stage library "$HERE/make_library.py" "$HERE/guest/_skillcell_loop.py"
stage link "$HERE/guest/reactor.c" "$HERE/guest/paths.c" "$HERE/guest/numbers.c" "$HERE/guest/boot.py"
sha256sum "$WORK/out/python.wasm" "$WORK/out/$ZIP"
