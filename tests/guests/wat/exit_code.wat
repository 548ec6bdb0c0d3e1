;; A component that ends with a status of its own, by the call that WASI 0.2.12 has for it.
(component
  (import "wasi:cli/exit@0.2.12" (instance $exit (export "exit-with-code" (func (param "status-code" u8)))))
  (core func $exit_with_code (canon lower (func $exit "exit-with-code")))
  (core module $guest
    (import "exit" "with-code" (func $exit_with_code (param i32)))
    (func (export "run") (result i32) (call $exit_with_code (i32.const 42)) (i32.const 0)))
  (core instance $made (instantiate $guest
    (with "exit" (instance (export "with-code" (func $exit_with_code))))))
  (func $run (result (result)) (canon lift (core func $made "run")))
  (instance $out (export "run" (func $run)))
  (export "wasi:cli/run@0.2.12" (instance $out)))
