;; The probe: does to its world what its arguments say, one command after the other, and says what came of each.
;;
;; An argument vector is a list of commands: a verb, then the arguments that the verb takes. Each command prints one
;; line, `verb errno detail`, with the number of WASI preview 1 (0: done). Verbs that only print (`say`, `args`, ...)
;; print nothing of their own. An unknown verb or a missing argument traps, so that a test can't pass by a typing error.
;; Paths are absolute; the longest preopened folder that fits is used and the rest is handed on unchanged, so
;; `/workspace/out/../x` asks the folder /workspace/out for `../x`, and `/workspace/out//x` asks it for `/x`.
(module
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $environ_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock_time_get (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_allocate" (func $fd_allocate (param i32 i64 i64) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $fd_close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_filestat_set_size" (func $fd_filestat_set_size (param i32 i64) (result i32)))
  (import "wasi_snapshot_preview1" "fd_filestat_set_times"
    (func $fd_filestat_set_times (param i32 i64 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_get" (func $fd_prestat_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_dir_name" (func $fd_prestat_dir_name (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_pwrite" (func $fd_pwrite (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_readdir" (func $fd_readdir (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_renumber" (func $fd_renumber (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_seek" (func $fd_seek (param i32 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_create_directory"
    (func $path_create_directory (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_filestat_get"
    (func $path_filestat_get (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_filestat_set_times"
    (func $path_filestat_set_times (param i32 i32 i32 i32 i64 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_link" (func $path_link (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_readlink"
    (func $path_readlink (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_remove_directory"
    (func $path_remove_directory (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_rename" (func $path_rename (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_symlink" (func $path_symlink (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_unlink_file" (func $path_unlink_file (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))

  ;; Pages: 0 small things; 1 a buffer of 64 KiB; 2 to 18 arguments; 19 pointers to variables; 20 to 37 variables;
  ;; 40 to 43 the detail of the line.
  (memory (export "memory") 44)
  ;; 0 iovec, 8 a length or a number, 16 a descriptor, 64 a file's state, 128 a subscription, 192 an event,
  ;; 256 a preopen, 312 a dot, 321 digits, 512 words, 2048 a preopen's name, 8192 a path, 32768 pointers to arguments.
  (global $argc (mut i32) (i32.const 0))
  (global $next_argument (mut i32) (i32.const 1))
  (global $folder (mut i32) (i32.const 0))
  (global $detail (mut i32) (i32.const 2621440))

  (data (i32.const 312) ".\00")
  (data (i32.const 330) " \n<>")
  ;; The verbs, in the order of the table below, and an empty one at the end.
  (data (i32.const 512)
    "args\00env\00say\00err\00print\00flood\00cat\00preopens\00"
    "read\00list\00stat\00lstat\00readlink\00"
    "write\00append\00create\00existing\00cut\00cutw\00resize\00resizer\00allocate\00poke\00pwrite\00times\00fdtimes\00"
    "mkdir\00rmdir\00unlink\00rename\00link\00symlink\00"
    "open\00files\00renumber\00fill\00count\00nest\00orphans\00reuse\00double\00hide\00links\00"
    "sleep\00exit\00random\00clock\00pages\00grow\00spin\00descend\00trap\00divide\00\00")
  (type $verb (func (result i32)))
  (table funcref (elem
    $args $env $say $err $print $flood $cat $preopens
    $read $list $stat $lstat $readlink
    $write $append $create $existing $cut $cutw $resize $resizer $allocate $poke $pwrite $times $fdtimes
    $mkdir $rmdir $unlink $rename $link $symlink
    $open $files $renumber $fill $count $nest $orphans $reuse $double $hide $links
    $sleep $exit $random $clock $pages $grow $spin $descend $trap $divide))

  (func (export "_start")
    (local $word i32) (local $index i32) (local $errno i32)
    (if (call $args_sizes_get (i32.const 8) (i32.const 16)) (then (unreachable)))
    (global.set $argc (i32.load (i32.const 8)))
    (if (call $args_get (i32.const 32768) (i32.const 131072)) (then (unreachable)))
    (loop $again
      (if (i32.ge_u (global.get $next_argument) (global.get $argc)) (then (return)))
      (local.set $word (call $argument))
      (local.set $index (call $index_of (local.get $word)))
      (global.set $detail (i32.const 2621440))
      (local.set $errno (call_indirect (type $verb) (local.get $index)))
      (if (i32.ge_s (local.get $errno) (i32.const 0))
        (then
          (call $print_text (local.get $word))
          (call $print_bytes (i32.const 330) (i32.const 1))
          (call $print_bytes (i32.const 321) (call $digits (i64.extend_i32_u (local.get $errno))))
          (if (i32.gt_u (global.get $detail) (i32.const 2621440))
            (then
              (call $print_bytes (i32.const 330) (i32.const 1))
              (call $print_bytes (i32.const 2621440) (i32.sub (global.get $detail) (i32.const 2621440)))))
          (call $print_bytes (i32.const 331) (i32.const 1))))
      (br $again)))

  ;; --- words and numbers

  (func $length (param $text i32) (result i32)
    (local $end i32)
    (local.set $end (local.get $text))
    (block $found
      (loop $more
        (br_if $found (i32.eqz (i32.load8_u (local.get $end))))
        (local.set $end (i32.add (local.get $end) (i32.const 1)))
        (br $more)))
    (i32.sub (local.get $end) (local.get $text)))

  (func $same (param $a i32) (param $b i32) (result i32)
    (loop $more
      (if (i32.ne (i32.load8_u (local.get $a)) (i32.load8_u (local.get $b))) (then (return (i32.const 0))))
      (if (i32.eqz (i32.load8_u (local.get $a))) (then (return (i32.const 1))))
      (local.set $a (i32.add (local.get $a) (i32.const 1)))
      (local.set $b (i32.add (local.get $b) (i32.const 1)))
      (br $more))
    (unreachable))

  ;; The next argument; traps when there is none.
  (func $argument (result i32)
    (local $index i32)
    (local.set $index (global.get $next_argument))
    (if (i32.ge_u (local.get $index) (global.get $argc)) (then (unreachable)))
    (global.set $next_argument (i32.add (local.get $index) (i32.const 1)))
    (i32.load (i32.add (i32.const 32768) (i32.mul (local.get $index) (i32.const 4)))))

  ;; The position of a verb in the list; traps when it isn't there.
  (func $index_of (param $word i32) (result i32)
    (local $index i32) (local $known i32)
    (local.set $known (i32.const 512))
    (loop $more
      (if (i32.eqz (i32.load8_u (local.get $known))) (then (unreachable)))
      (if (call $same (local.get $word) (local.get $known)) (then (return (local.get $index))))
      (local.set $known (i32.add (i32.add (local.get $known) (call $length (local.get $known))) (i32.const 1)))
      (local.set $index (i32.add (local.get $index) (i32.const 1)))
      (br $more))
    (unreachable))

  ;; A decimal number, perhaps with a minus.
  (func $number (param $text i32) (result i64)
    (local $value i64) (local $minus i32)
    (if (i32.eq (i32.load8_u (local.get $text)) (i32.const 45))
      (then (local.set $minus (i32.const 1)) (local.set $text (i32.add (local.get $text) (i32.const 1)))))
    (block $end
      (loop $more
        (br_if $end (i32.eqz (i32.load8_u (local.get $text))))
        (local.set $value (i64.add (i64.mul (local.get $value) (i64.const 10))
          (i64.extend_i32_u (i32.sub (i32.load8_u (local.get $text)) (i32.const 48)))))
        (local.set $text (i32.add (local.get $text) (i32.const 1)))
        (br $more)))
    (if (local.get $minus) (then (return (i64.sub (i64.const 0) (local.get $value)))))
    (local.get $value))

  (func $number_argument (result i64) (call $number (call $argument)))

  ;; Puts the digits of a small number at 321, where there is room for nine; the length is returned.
  (func $digits (param $value i64) (result i32)
    (local $length i32)
    (local.set $length (call $digits_at (i32.const 400) (local.get $value)))
    (memory.copy (i32.const 321) (i32.const 400) (i32.const 9))
    (local.get $length))

  (func $digits_at (param $to i32) (param $value i64) (result i32)
    (local $at i32)
    (local.set $at (i32.const 480))
    (loop $more
      (local.set $at (i32.sub (local.get $at) (i32.const 1)))
      (i32.store8 (local.get $at)
        (i32.add (i32.const 48) (i32.wrap_i64 (i64.rem_u (local.get $value) (i64.const 10)))))
      (local.set $value (i64.div_u (local.get $value) (i64.const 10)))
      (br_if $more (i64.ne (local.get $value) (i64.const 0))))
    (memory.copy (local.get $to) (local.get $at) (i32.sub (i32.const 480) (local.get $at)))
    (i32.sub (i32.const 480) (local.get $at)))

  ;; --- output

  (func $write_all (param $descriptor i32) (param $at i32) (param $length i32) (result i32)
    (local $errno i32) (local $taken i32)
    (loop $more
      (if (i32.eqz (local.get $length)) (then (return (i32.const 0))))
      (i32.store (i32.const 0) (local.get $at))
      (i32.store (i32.const 4) (local.get $length))
      (local.set $errno (call $fd_write (local.get $descriptor) (i32.const 0) (i32.const 1) (i32.const 8)))
      (if (local.get $errno) (then (return (local.get $errno))))
      (local.set $taken (i32.load (i32.const 8)))
      (local.set $at (i32.add (local.get $at) (local.get $taken)))
      (local.set $length (i32.sub (local.get $length) (local.get $taken)))
      (br $more))
    (unreachable))

  (func $print_bytes (param $at i32) (param $length i32)
    (if (call $write_all (i32.const 1) (local.get $at) (local.get $length)) (then (unreachable))))
  (func $print_text (param $text i32) (call $print_bytes (local.get $text) (call $length (local.get $text))))
  (func $detail_bytes (param $at i32) (param $length i32)
    (memory.copy (global.get $detail) (local.get $at) (local.get $length))
    (global.set $detail (i32.add (global.get $detail) (local.get $length))))
  (func $detail_number (param $value i64)
    (global.set $detail (i32.add (global.get $detail) (call $digits_at (global.get $detail) (local.get $value)))))
  (func $detail_space (call $detail_bytes (i32.const 330) (i32.const 1)))
  (func $fill_buffer (memory.fill (i32.const 65536) (i32.const 120) (i32.const 65536)))

  ;; --- paths

  ;; Splits a path into a preopened folder ($folder) and the rest (returned). Without a fitting folder, the first one is
  ;; asked for the whole path.
  (func $split (param $path i32) (result i32)
    (local $descriptor i32) (local $best i32) (local $length i32)
    (global.set $folder (i32.const 3))
    (local.set $descriptor (i32.const 3))
    (block $end
      (loop $more
        (br_if $end (call $fd_prestat_get (local.get $descriptor) (i32.const 256)))
        (local.set $length (i32.load (i32.const 260)))
        (if (call $fd_prestat_dir_name (local.get $descriptor) (i32.const 2048) (local.get $length))
          (then (unreachable)))
        (if (i32.and (i32.gt_u (local.get $length) (local.get $best)) (call $below (local.get $path) (local.get $length)))
          (then (local.set $best (local.get $length)) (global.set $folder (local.get $descriptor))))
        (local.set $descriptor (i32.add (local.get $descriptor) (i32.const 1)))
        (br $more)))
    (if (i32.eqz (local.get $best)) (then (return (local.get $path))))
    (local.set $path (i32.add (local.get $path) (local.get $best)))
    (if (i32.eq (i32.load8_u (local.get $path)) (i32.const 47))
      (then (local.set $path (i32.add (local.get $path) (i32.const 1)))))
    (if (i32.eqz (i32.load8_u (local.get $path))) (then (return (i32.const 312))))
    (local.get $path))

  ;; Whether the name at 2048 is the path or one of its parents.
  (func $below (param $path i32) (param $length i32) (result i32)
    (local $index i32) (local $after i32)
    (block $end
      (loop $more
        (br_if $end (i32.eq (local.get $index) (local.get $length)))
        (if (i32.ne (i32.load8_u (i32.add (local.get $path) (local.get $index)))
                    (i32.load8_u (i32.add (i32.const 2048) (local.get $index))))
          (then (return (i32.const 0))))
        (local.set $index (i32.add (local.get $index) (i32.const 1)))
        (br $more)))
    (local.set $after (i32.load8_u (i32.add (local.get $path) (local.get $length))))
    (i32.or (i32.eqz (local.get $after)) (i32.eq (local.get $after) (i32.const 47))))

  ;; Opens a path, following links; the descriptor is then at 16.
  (func $open_path (param $path i32) (param $oflags i32) (param $rights i64) (param $fdflags i32) (result i32)
    (local $rest i32)
    (local.set $rest (call $split (local.get $path)))
    (call $path_open (global.get $folder) (i32.const 1) (local.get $rest) (call $length (local.get $rest))
      (local.get $oflags) (local.get $rights) (i64.const 0) (local.get $fdflags) (i32.const 16)))
  ;; Rights: read, seek, tell, list, look at the state.
  (func $open_read (param $path i32) (param $oflags i32) (result i32)
    (call $open_path (local.get $path) (local.get $oflags) (i64.const 0x204026) (i32.const 0)))
  ;; Rights: write, seek, tell, allocate, look at and set the state.
  (func $open_write (param $path i32) (param $oflags i32) (param $fdflags i32) (result i32)
    (call $open_path (local.get $path) (local.get $oflags) (i64.const 0xe00164) (local.get $fdflags)))
  (func $opened (result i32) (i32.load (i32.const 16)))
  ;; Closes what is at 16 and passes an errno on.
  (func $close (param $errno i32) (result i32)
    (if (call $fd_close (call $opened)) (then (unreachable)))
    (local.get $errno))

  ;; --- verbs that only print

  (func $args (result i32)
    (local $index i32)
    (block $end
      (loop $more
        (br_if $end (i32.ge_u (local.get $index) (global.get $argc)))
        (call $print_bytes (i32.const 332) (i32.const 1))
        (call $print_text (i32.load (i32.add (i32.const 32768) (i32.mul (local.get $index) (i32.const 4)))))
        (call $print_bytes (i32.const 333) (i32.const 1))
        (local.set $index (i32.add (local.get $index) (i32.const 1)))
        (br $more)))
    ;; The rest are no commands.
    (global.set $next_argument (global.get $argc))
    (i32.const -1))

  (func $env (result i32)
    (local $index i32) (local $count i32)
    (if (call $environ_sizes_get (i32.const 8) (i32.const 16)) (then (unreachable)))
    (local.set $count (i32.load (i32.const 8)))
    (if (call $environ_get (i32.const 1245184) (i32.const 1310720)) (then (unreachable)))
    (block $end
      (loop $more
        (br_if $end (i32.ge_u (local.get $index) (local.get $count)))
        (call $print_text (i32.load (i32.add (i32.const 1245184) (i32.mul (local.get $index) (i32.const 4)))))
        (call $print_bytes (i32.const 331) (i32.const 1))
        (local.set $index (i32.add (local.get $index) (i32.const 1)))
        (br $more)))
    (i32.const -1))

  (func $say (result i32) (call $print_text (call $argument)) (i32.const -1))
  (func $err (result i32)
    (local $text i32)
    (local.set $text (call $argument))
    (if (call $write_all (i32.const 2) (local.get $text) (call $length (local.get $text))) (then (unreachable)))
    (i32.const -1))

  ;; print N: that many bytes without a newline.
  (func $print (result i32)
    (local $left i64)
    (call $fill_buffer)
    (local.set $left (call $number_argument))
    (block $end
      (loop $more
        (br_if $end (i64.eqz (local.get $left)))
        (if (i64.lt_u (local.get $left) (i64.const 65536))
          (then (call $print_bytes (i32.const 65536) (i32.wrap_i64 (local.get $left))) (br $end)))
        (call $print_bytes (i32.const 65536) (i32.const 65536))
        (local.set $left (i64.sub (local.get $left) (i64.const 65536)))
        (br $more)))
    (i32.const -1))

  ;; flood: bytes for ever, on stderr when the argument is 2.
  (func $flood (result i32)
    (local $descriptor i32)
    (local.set $descriptor (i32.wrap_i64 (call $number_argument)))
    (call $fill_buffer)
    (loop $more
      (br_if $more (i32.eqz (call $write_all (local.get $descriptor) (i32.const 65536) (i32.const 65536)))))
    (unreachable))

  ;; cat: standard input on standard output.
  (func $cat (result i32)
    (loop $more
      (i32.store (i32.const 0) (i32.const 65536))
      (i32.store (i32.const 4) (i32.const 65536))
      (if (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)) (then (unreachable)))
      (if (i32.load (i32.const 8))
        (then (call $print_bytes (i32.const 65536) (i32.load (i32.const 8))) (br $more))))
    (i32.const -1))

  (func $preopens (result i32)
    (local $descriptor i32)
    (local.set $descriptor (i32.const 3))
    (block $end
      (loop $more
        (br_if $end (call $fd_prestat_get (local.get $descriptor) (i32.const 256)))
        (if (call $fd_prestat_dir_name (local.get $descriptor) (i32.const 2048) (i32.load (i32.const 260)))
          (then (unreachable)))
        (call $print_bytes (i32.const 2048) (i32.load (i32.const 260)))
        (call $print_bytes (i32.const 331) (i32.const 1))
        (local.set $descriptor (i32.add (local.get $descriptor) (i32.const 1)))
        (br $more)))
    (i32.const -1))

  ;; --- verbs that look

  ;; read PATH: the detail is the content, its first 64 KiB.
  (func $read (result i32)
    (local $errno i32) (local $length i32)
    (local.set $errno (call $open_read (call $argument) (i32.const 0)))
    (if (local.get $errno) (then (return (local.get $errno))))
    (loop $more
      (i32.store (i32.const 0) (i32.add (i32.const 65536) (local.get $length)))
      (i32.store (i32.const 4) (i32.sub (i32.const 65536) (local.get $length)))
      (local.set $errno (call $fd_read (call $opened) (i32.const 0) (i32.const 1) (i32.const 8)))
      (if (local.get $errno) (then (return (call $close (local.get $errno)))))
      (local.set $length (i32.add (local.get $length) (i32.load (i32.const 8))))
      (br_if $more (i32.and (i32.ne (i32.load (i32.const 8)) (i32.const 0)) (i32.lt_u (local.get $length) (i32.const 65536)))))
    (call $detail_bytes (i32.const 65536) (local.get $length))
    (call $close (i32.const 0)))

  ;; list PATH: the detail is the names, in the order of the host, without `.` and `..`.
  (func $list (result i32)
    (local $errno i32) (local $at i32) (local $end i32) (local $length i32) (local $dots i32)
    (local.set $errno (call $open_read (call $argument) (i32.const 2)))
    (if (local.get $errno) (then (return (local.get $errno))))
    (local.set $errno
      (call $fd_readdir (call $opened) (i32.const 65536) (i32.const 65536) (i64.const 0) (i32.const 8)))
    (if (local.get $errno) (then (return (call $close (local.get $errno)))))
    (local.set $at (i32.const 65536))
    (local.set $end (i32.add (i32.const 65536) (i32.load (i32.const 8))))
    (block $done
      (loop $more
        (br_if $done (i32.gt_u (i32.add (local.get $at) (i32.const 24)) (local.get $end)))
        (local.set $length (i32.load offset=16 (local.get $at)))
        (local.set $at (i32.add (local.get $at) (i32.const 24)))
        (local.set $dots (i32.or
          (i32.and (i32.eq (local.get $length) (i32.const 1)) (i32.eq (i32.load8_u (local.get $at)) (i32.const 46)))
          (i32.and (i32.eq (local.get $length) (i32.const 2)) (i32.eq (i32.load16_u (local.get $at)) (i32.const 0x2e2e)))))
        (if (i32.eqz (local.get $dots))
          (then
            (if (i32.gt_u (global.get $detail) (i32.const 2621440)) (then (call $detail_space)))
            (call $detail_bytes (local.get $at) (local.get $length))))
        (local.set $at (i32.add (local.get $at) (local.get $length)))
        (br $more)))
    (call $close (i32.const 0)))

  ;; The detail of a state is the type (3 folder, 4 file, 7 link) and the size.
  (func $state (param $flags i32) (result i32)
    (local $errno i32) (local $rest i32)
    (local.set $rest (call $split (call $argument)))
    (local.set $errno (call $path_filestat_get (global.get $folder) (local.get $flags) (local.get $rest)
      (call $length (local.get $rest)) (i32.const 64)))
    (if (local.get $errno) (then (return (local.get $errno))))
    (call $detail_number (i64.load8_u (i32.const 80)))
    (call $detail_space)
    (call $detail_number (i64.load (i32.const 96)))
    (i32.const 0))
  (func $stat (result i32) (call $state (i32.const 1)))
  (func $lstat (result i32) (call $state (i32.const 0)))

  (func $readlink (result i32)
    (local $errno i32) (local $rest i32)
    (local.set $rest (call $split (call $argument)))
    (local.set $errno (call $path_readlink (global.get $folder) (local.get $rest) (call $length (local.get $rest))
      (i32.const 65536) (i32.const 65536) (i32.const 8)))
    (if (local.get $errno) (then (return (local.get $errno))))
    (call $detail_bytes (i32.const 65536) (i32.load (i32.const 8)))
    (i32.const 0))

  ;; --- verbs that write files

  (func $put (param $oflags i32) (param $fdflags i32) (result i32)
    (local $errno i32) (local $text i32)
    (local.set $errno (call $open_write (call $argument) (local.get $oflags) (local.get $fdflags)))
    (local.set $text (call $argument))
    (if (local.get $errno) (then (return (local.get $errno))))
    (call $close (call $write_all (call $opened) (local.get $text) (call $length (local.get $text)))))
  ;; write PATH TEXT, append PATH TEXT; existing PATH TEXT writes over the beginning of what must be there.
  (func $write (result i32) (call $put (i32.const 9) (i32.const 0)))
  (func $append (result i32) (call $put (i32.const 1) (i32.const 1)))
  (func $existing (result i32) (call $put (i32.const 0) (i32.const 0)))
  ;; create PATH: a file that must not be there.
  (func $create (result i32)
    (local $errno i32)
    (local.set $errno (call $open_write (call $argument) (i32.const 5) (i32.const 0)))
    (if (local.get $errno) (then (return (local.get $errno))))
    (call $close (i32.const 0)))
  ;; cut PATH: opens for reading and truncates; cutw asks for writing too.
  (func $cut (result i32)
    (local $errno i32)
    (local.set $errno (call $open_read (call $argument) (i32.const 8)))
    (if (local.get $errno) (then (return (local.get $errno))))
    (call $close (i32.const 0)))
  (func $cutw (result i32)
    (local $errno i32)
    (local.set $errno (call $open_write (call $argument) (i32.const 8) (i32.const 0)))
    (if (local.get $errno) (then (return (local.get $errno))))
    (call $close (i32.const 0)))
  ;; resize PATH SIZE: made if missing; resizer does it on a descriptor that was opened for reading.
  (func $resize (result i32)
    (local $errno i32) (local $size i64)
    (local.set $errno (call $open_write (call $argument) (i32.const 1) (i32.const 0)))
    (local.set $size (call $number_argument))
    (if (local.get $errno) (then (return (local.get $errno))))
    (call $close (call $fd_filestat_set_size (call $opened) (local.get $size))))
  (func $resizer (result i32)
    (local $errno i32) (local $size i64)
    (local.set $errno (call $open_read (call $argument) (i32.const 0)))
    (local.set $size (call $number_argument))
    (if (local.get $errno) (then (return (local.get $errno))))
    (call $close (call $fd_filestat_set_size (call $opened) (local.get $size))))
  (func $allocate (result i32)
    (local $errno i32) (local $size i64)
    (local.set $errno (call $open_write (call $argument) (i32.const 1) (i32.const 0)))
    (local.set $size (call $number_argument))
    (if (local.get $errno) (then (return (local.get $errno))))
    (call $close (call $fd_allocate (call $opened) (i64.const 0) (local.get $size))))
  ;; poke PATH OFFSET: one byte there, by seek and write; pwrite the same in one call.
  (func $poke (result i32)
    (local $errno i32) (local $offset i64)
    (local.set $errno (call $open_write (call $argument) (i32.const 1) (i32.const 0)))
    (local.set $offset (call $number_argument))
    (if (local.get $errno) (then (return (local.get $errno))))
    (local.set $errno (call $fd_seek (call $opened) (local.get $offset) (i32.const 0) (i32.const 8)))
    (if (local.get $errno) (then (return (call $close (local.get $errno)))))
    (call $close (call $write_all (call $opened) (i32.const 312) (i32.const 1))))
  (func $pwrite (result i32)
    (local $errno i32) (local $offset i64)
    (local.set $errno (call $open_write (call $argument) (i32.const 1) (i32.const 0)))
    (local.set $offset (call $number_argument))
    (if (local.get $errno) (then (return (local.get $errno))))
    (i32.store (i32.const 0) (i32.const 312))
    (i32.store (i32.const 4) (i32.const 1))
    (call $close
      (call $fd_pwrite (call $opened) (i32.const 0) (i32.const 1) (local.get $offset) (i32.const 8))))
  ;; times PATH: sets both times to the first second of 1970; fdtimes on a descriptor opened for reading.
  (func $times (result i32)
    (local $rest i32)
    (local.set $rest (call $split (call $argument)))
    (call $path_filestat_set_times (global.get $folder) (i32.const 1) (local.get $rest)
      (call $length (local.get $rest)) (i64.const 1000000000) (i64.const 1000000000) (i32.const 5)))
  (func $fdtimes (result i32)
    (local $errno i32)
    (local.set $errno (call $open_read (call $argument) (i32.const 0)))
    (if (local.get $errno) (then (return (local.get $errno))))
    (call $close
      (call $fd_filestat_set_times (call $opened) (i64.const 1000000000) (i64.const 1000000000) (i32.const 5))))

  ;; --- verbs on names

  (func $mkdir (result i32)
    (local $rest i32)
    (local.set $rest (call $split (call $argument)))
    (call $path_create_directory (global.get $folder) (local.get $rest) (call $length (local.get $rest))))
  (func $rmdir (result i32)
    (local $rest i32)
    (local.set $rest (call $split (call $argument)))
    (call $path_remove_directory (global.get $folder) (local.get $rest) (call $length (local.get $rest))))
  (func $unlink (result i32)
    (local $rest i32)
    (local.set $rest (call $split (call $argument)))
    (call $path_unlink_file (global.get $folder) (local.get $rest) (call $length (local.get $rest))))
  (func $rename (result i32)
    (local $old i32) (local $old_folder i32) (local $new i32)
    (local.set $old (call $split (call $argument)))
    (local.set $old_folder (global.get $folder))
    (local.set $new (call $split (call $argument)))
    (call $path_rename (local.get $old_folder) (local.get $old) (call $length (local.get $old))
      (global.get $folder) (local.get $new) (call $length (local.get $new))))
  (func $link (result i32)
    (local $old i32) (local $old_folder i32) (local $new i32)
    (local.set $old (call $split (call $argument)))
    (local.set $old_folder (global.get $folder))
    (local.set $new (call $split (call $argument)))
    (call $path_link (local.get $old_folder) (i32.const 0) (local.get $old) (call $length (local.get $old))
      (global.get $folder) (local.get $new) (call $length (local.get $new))))
  ;; symlink TARGET PATH: the target is handed on as it is.
  (func $symlink (result i32)
    (local $target i32) (local $rest i32)
    (local.set $target (call $argument))
    (local.set $rest (call $split (call $argument)))
    (call $path_symlink (local.get $target) (call $length (local.get $target)) (global.get $folder)
      (local.get $rest) (call $length (local.get $rest))))

  ;; --- verbs that want much

  ;; open PATH COUNT: that many descriptors at once; the detail is how many there were.
  (func $open (result i32)
    (local $path i32) (local $left i64) (local $done i64) (local $errno i32)
    (local.set $path (call $argument))
    (local.set $left (call $number_argument))
    (block $end
      (loop $more
        (br_if $end (i64.eq (local.get $done) (local.get $left)))
        (local.set $errno (call $open_read (local.get $path) (i32.const 0)))
        (br_if $end (local.get $errno))
        (local.set $done (i64.add (local.get $done) (i64.const 1)))
        (br $more)))
    (call $detail_number (local.get $done))
    (local.get $errno))

  ;; files PATH COUNT: empty files whose names are the path and a number; the detail is how many there were.
  (func $files (result i32)
    (local $length i32) (local $path i32) (local $left i64) (local $done i64) (local $errno i32) (local $end_of_name i32)
    (local.set $path (call $argument))
    (local.set $length (call $length (local.get $path)))
    (memory.copy (i32.const 8192) (local.get $path) (local.get $length))
    (local.set $left (call $number_argument))
    (block $end
      (loop $more
        (br_if $end (i64.eq (local.get $done) (local.get $left)))
        (local.set $end_of_name (i32.add (i32.const 8192) (local.get $length)))
        (local.set $end_of_name
          (i32.add (local.get $end_of_name) (call $digits_at (local.get $end_of_name) (local.get $done))))
        (i32.store8 (local.get $end_of_name) (i32.const 0))
        (local.set $errno (call $open_write (i32.const 8192) (i32.const 1) (i32.const 0)))
        (br_if $end (local.get $errno))
        (drop (call $close (i32.const 0)))
        (local.set $done (i64.add (local.get $done) (i64.const 1)))
        (br $more)))
    (call $detail_number (local.get $done))
    (local.get $errno))

  ;; renumber PATH COUNT: opens two descriptors and moves one onto the other, that many times.
  (func $renumber (result i32)
    (local $path i32) (local $left i64) (local $done i64) (local $errno i32) (local $first i32)
    (local.set $path (call $argument))
    (local.set $left (call $number_argument))
    (block $end
      (loop $more
        (br_if $end (i64.eq (local.get $done) (local.get $left)))
        (local.set $errno (call $open_read (local.get $path) (i32.const 0)))
        (br_if $end (local.get $errno))
        (local.set $first (call $opened))
        (local.set $errno (call $open_read (local.get $path) (i32.const 0)))
        (br_if $end (local.get $errno))
        (local.set $errno (call $fd_renumber (local.get $first) (call $opened)))
        (br_if $end (local.get $errno))
        (drop (call $close (i32.const 0)))
        (local.set $done (i64.add (local.get $done) (i64.const 1)))
        (br $more)))
    (call $detail_number (local.get $done))
    (local.get $errno))

  ;; fill PATH: appends 64 KiB for ever; count PATH: one byte for ever.
  (func $append_for_ever (param $bytes i32) (result i32)
    (local $errno i32)
    (call $fill_buffer)
    (local.set $errno (call $open_write (call $argument) (i32.const 1) (i32.const 1)))
    (loop $more
      (if (i32.eqz (local.get $errno))
        (then
          (local.set $errno (call $write_all (call $opened) (i32.const 65536) (local.get $bytes)))
          (br $more))))
    (local.get $errno))
  (func $fill (result i32) (call $append_for_ever (i32.const 65536)))
  (func $count (result i32) (call $append_for_ever (i32.const 1)))

  ;; nest PATH COUNT: folders called x, each in the one before, by descriptors; the detail is how many there were.
  (func $nest (result i32)
    (local $left i64) (local $done i64) (local $errno i32) (local $outer i32)
    (call $fill_buffer)
    (local.set $errno (call $open_read (call $argument) (i32.const 2)))
    (local.set $left (call $number_argument))
    (block $end
      (loop $more
        (br_if $end (local.get $errno))
        (br_if $end (i64.eq (local.get $done) (local.get $left)))
        (local.set $outer (call $opened))
        (local.set $errno (call $path_create_directory (local.get $outer) (i32.const 65536) (i32.const 1)))
        (br_if $end (local.get $errno))
        (local.set $done (i64.add (local.get $done) (i64.const 1)))
        (local.set $errno (call $path_open (local.get $outer) (i32.const 0) (i32.const 65536) (i32.const 1) (i32.const 2)
          (i64.const 0x204026) (i64.const 0) (i32.const 0) (i32.const 16)))
        (drop (call $fd_close (local.get $outer)))
        (br $more)))
    (call $detail_number (local.get $done))
    (local.get $errno))

  ;; orphans PATH COUNT: files of 64 KiB that are removed while they are open, and stay open; reuse closes them first.
  ;; The detail is how many there were.
  (func $removed_files (param $close_first i32) (result i32)
    (local $path i32) (local $rest i32) (local $left i64) (local $done i64) (local $errno i32)
    (call $fill_buffer)
    (local.set $path (call $argument))
    (local.set $left (call $number_argument))
    (block $end
      (loop $more
        (br_if $end (i64.eq (local.get $done) (local.get $left)))
        (local.set $errno (call $open_write (local.get $path) (i32.const 5) (i32.const 0)))
        (br_if $end (local.get $errno))
        (local.set $errno (call $write_all (call $opened) (i32.const 65536) (i32.const 65536)))
        (br_if $end (local.get $errno))
        (if (local.get $close_first) (then (drop (call $close (i32.const 0)))))
        (local.set $rest (call $split (local.get $path)))
        (local.set $errno
          (call $path_unlink_file (global.get $folder) (local.get $rest) (call $length (local.get $rest))))
        (br_if $end (local.get $errno))
        (local.set $done (i64.add (local.get $done) (i64.const 1)))
        (br $more)))
    (call $detail_number (local.get $done))
    (local.get $errno))
  (func $orphans (result i32) (call $removed_files (i32.const 0)))
  (func $reuse (result i32) (call $removed_files (i32.const 1)))

  ;; double PATH: opens it twice and appends 64 KiB to each by turns, for ever.
  (func $double (result i32)
    (local $path i32) (local $first i32) (local $errno i32)
    (call $fill_buffer)
    (local.set $path (call $argument))
    (local.set $errno (call $open_write (local.get $path) (i32.const 1) (i32.const 1)))
    (if (local.get $errno) (then (return (local.get $errno))))
    (local.set $first (call $opened))
    (local.set $errno (call $open_write (local.get $path) (i32.const 1) (i32.const 1)))
    (loop $more
      (if (local.get $errno) (then (return (local.get $errno))))
      (local.set $errno (call $write_all (local.get $first) (i32.const 65536) (i32.const 65536)))
      (if (local.get $errno) (then (return (local.get $errno))))
      (local.set $errno (call $write_all (call $opened) (i32.const 65536) (i32.const 65536)))
      (br $more))
    (unreachable))

  ;; hide FILE FOLDER OTHER: appends 64 KiB to FILE, which is in FOLDER, and moves FOLDER to OTHER and back, for ever.
  (func $hide (result i32)
    (local $errno i32) (local $old i32) (local $new i32) (local $old_folder i32) (local $new_folder i32)
    (call $fill_buffer)
    (local.set $errno (call $open_write (call $argument) (i32.const 1) (i32.const 1)))
    (local.set $old (call $split (call $argument)))
    (local.set $old_folder (global.get $folder))
    (local.set $new (call $split (call $argument)))
    (local.set $new_folder (global.get $folder))
    (loop $more
      (if (local.get $errno) (then (return (local.get $errno))))
      (local.set $errno (call $write_all (call $opened) (i32.const 65536) (i32.const 65536)))
      (if (local.get $errno) (then (return (local.get $errno))))
      (local.set $errno (call $path_rename (local.get $old_folder) (local.get $old) (call $length (local.get $old))
        (local.get $new_folder) (local.get $new) (call $length (local.get $new))))
      (if (local.get $errno) (then (return (local.get $errno))))
      (local.set $errno (call $path_rename (local.get $new_folder) (local.get $new) (call $length (local.get $new))
        (local.get $old_folder) (local.get $old) (call $length (local.get $old))))
      (br $more))
    (unreachable))

  ;; links PATH COUNT: other names of the file, which are the path and a number; the detail is how many there were.
  (func $links (result i32)
    (local $length i32) (local $path i32) (local $left i64) (local $done i64) (local $errno i32) (local $new i32)
    (local.set $path (call $argument))
    (local.set $length (call $length (local.get $path)))
    (memory.copy (i32.const 8192) (local.get $path) (local.get $length))
    (local.set $left (call $number_argument))
    (local.set $path (call $split (local.get $path)))
    (block $end
      (loop $more
        (br_if $end (i64.eq (local.get $done) (local.get $left)))
        (local.set $new (i32.add (i32.const 8192) (local.get $length)))
        (i32.store8 (i32.add (local.get $new) (call $digits_at (local.get $new) (local.get $done))) (i32.const 0))
        (local.set $new (call $split (i32.const 8192)))
        (local.set $errno (call $path_link (global.get $folder) (i32.const 0) (local.get $path)
          (call $length (local.get $path)) (global.get $folder) (local.get $new) (call $length (local.get $new))))
        (br_if $end (local.get $errno))
        (local.set $done (i64.add (local.get $done) (i64.const 1)))
        (br $more)))
    (call $detail_number (local.get $done))
    (local.get $errno))

  ;; --- time, chance, memory, ends

  ;; sleep SECONDS, on the monotonic clock.
  (func $sleep (result i32)
    (memory.fill (i32.const 128) (i32.const 0) (i32.const 48))
    (i32.store (i32.const 144) (i32.const 1))
    (i64.store (i32.const 152) (i64.mul (call $number_argument) (i64.const 1000000000)))
    (call $poll_oneoff (i32.const 128) (i32.const 192) (i32.const 1) (i32.const 8)))
  (func $exit (result i32) (call $proc_exit (i32.wrap_i64 (call $number_argument))) (unreachable))
  ;; random BYTES: the detail is whether two draws of eight bytes within them differ (1) or not (0).
  (func $random (result i32)
    (local $errno i32)
    (local.set $errno (call $random_get (i32.const 65536) (i32.wrap_i64 (call $number_argument))))
    (if (local.get $errno) (then (return (local.get $errno))))
    (call $detail_number
      (i64.extend_i32_u (i64.ne (i64.load (i32.const 65536)) (i64.load (i32.const 65544)))))
    (i32.const 0))
  ;; clock ID: 0 the time of day, 1 the monotonic one; the detail is nanoseconds.
  (func $clock (result i32)
    (local $errno i32)
    (local.set $errno (call $clock_time_get (i32.wrap_i64 (call $number_argument)) (i64.const 1) (i32.const 8)))
    (if (local.get $errno) (then (return (local.get $errno))))
    (call $detail_number (i64.load (i32.const 8)))
    (i32.const 0))
  ;; pages COUNT: grows memory once; the detail is its former size, or 4294967295.
  (func $pages (result i32)
    (call $detail_number (i64.extend_i32_u (memory.grow (i32.wrap_i64 (call $number_argument)))))
    (i32.const 0))
  ;; grow: for ever; gives up as an allocator does when it is refused.
  (func $grow (result i32)
    (loop $more
      (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then (unreachable)))
      (br $more))
    (unreachable))
  (func $spin (result i32) (loop $more (br $more)) (unreachable))
  (func $descend (result i32) (i32.add (call $descend) (i32.const 1)))
  (func $trap (result i32) (unreachable))
  (func $divide (result i32) (i32.div_s (i32.const 1) (i32.const 0))))
