;; Traps deep inside functions that have names.
(module
  (memory (export "memory") 1)
  (func $innermost_function (param $at i32) (result i32) (i32.load (local.get $at)))
  (func $middle_function (result i32) (call $innermost_function (i32.const -1)))
  (func (export "_start") (drop (call $middle_function))))
