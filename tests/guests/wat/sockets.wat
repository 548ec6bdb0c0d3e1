;; A component that asks for sockets of preview 2. Succeeds when both kinds are refused with `access-denied`.
(component
  (import "wasi:sockets/network@0.2.0" (instance $network
    (type $codes (enum
      "unknown" "access-denied" "not-supported" "invalid-argument" "out-of-memory" "timeout" "concurrency-conflict"
      "not-in-progress" "would-block" "invalid-state" "new-socket-limit" "address-not-bindable" "address-in-use"
      "remote-unreachable" "connection-refused" "connection-reset" "connection-aborted" "datagram-too-large"
      "name-unresolvable" "temporary-resolver-failure" "permanent-resolver-failure"))
    (export "error-code" (type (eq $codes)))
    (type $families (enum "ipv4" "ipv6"))
    (export "ip-address-family" (type (eq $families)))))
  (alias export $network "error-code" (type $error-code))
  (alias export $network "ip-address-family" (type $family))
  (import "wasi:sockets/tcp@0.2.0" (instance $tcp (export "tcp-socket" (type (sub resource)))))
  (alias export $tcp "tcp-socket" (type $tcp-socket))
  (import "wasi:sockets/udp@0.2.0" (instance $udp (export "udp-socket" (type (sub resource)))))
  (alias export $udp "udp-socket" (type $udp-socket))
  (import "wasi:sockets/tcp-create-socket@0.2.0" (instance $make-tcp
    (export "error-code" (type $error (eq $error-code)))
    (export "ip-address-family" (type $of (eq $family)))
    (export "tcp-socket" (type $socket (eq $tcp-socket)))
    (export "create-tcp-socket"
      (func (param "address-family" $of) (result (result (own $socket) (error $error)))))))
  (import "wasi:sockets/udp-create-socket@0.2.0" (instance $make-udp
    (export "error-code" (type $error (eq $error-code)))
    (export "ip-address-family" (type $of (eq $family)))
    (export "udp-socket" (type $socket (eq $udp-socket)))
    (export "create-udp-socket"
      (func (param "address-family" $of) (result (result (own $socket) (error $error)))))))

  (core module $memory (memory (export "memory") 1))
  (core instance $memory (instantiate $memory))
  (core func $tcp (canon lower (func $make-tcp "create-tcp-socket") (memory (core memory $memory "memory"))))
  (core func $udp (canon lower (func $make-udp "create-udp-socket") (memory (core memory $memory "memory"))))
  (core module $main
    (import "host" "memory" (memory 1))
    (import "host" "tcp" (func $tcp (param i32 i32)))
    (import "host" "udp" (func $udp (param i32 i32)))
    ;; Whether a result at 0 is an error and the second of the codes.
    (func $denied (result i32)
      (i32.and (i32.eq (i32.load8_u (i32.const 0)) (i32.const 1)) (i32.eq (i32.load8_u (i32.const 4)) (i32.const 1))))
    (func (export "run") (result i32)
      (call $tcp (i32.const 0) (i32.const 0))
      (if (i32.eqz (call $denied)) (then (return (i32.const 1))))
      (i64.store (i32.const 0) (i64.const 0))
      (call $udp (i32.const 1) (i32.const 0))
      (i32.eqz (call $denied))))
  (core instance $main (instantiate $main (with "host" (instance
    (export "memory" (memory $memory "memory"))
    (export "tcp" (func $tcp))
    (export "udp" (func $udp))))))
  (func $run (result (result)) (canon lift (core func $main "run")))
  (instance $exports (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $exports)))
