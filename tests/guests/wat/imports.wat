;; Wants a function that no host has.
(module
  (import "env" "open_socket_v9" (func $open_socket (param i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (drop (call $open_socket (i32.const 80)))))
