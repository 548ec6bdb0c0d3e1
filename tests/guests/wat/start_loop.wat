;; Loops before it has begun: in the start function, while it is instantiated.
(module
  (memory (export "memory") 1)
  (func $before_main (loop $again (br $again)))
  (start $before_main)
  (func (export "_start")))
