//! Steps on the network that the standard library offers everywhere; on WebAssembly it answers that there is none.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use crate::{Outcome, done, place, say, text, word};

/// A connection on this machine is there at once or never; this only bounds a fault.
const PATIENCE: Duration = Duration::from_secs(5);

/// Does a step on the network; `None` for other verbs.
pub fn attempt(verb: &str, operands: &[String]) -> Option<Outcome> {
    Some(match verb {
        "tcp" => address(operands).and_then(tcp),
        "udp" => address(operands).and_then(|to| udp(to, word(operands, 1))),
        "own-tcp" => own_tcp(word(operands, 0)),
        "own-udp" => own_udp(),
        "serve" => serve(operands),
        _ => return None,
    })
}

fn address(operands: &[String]) -> io::Result<SocketAddr> {
    word(operands, 0).parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

fn tcp(to: SocketAddr) -> Outcome {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.write_all(b"probe")?;
    done()
}

fn udp(to: SocketAddr, message: &str) -> Outcome {
    let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.send_to(message.as_bytes(), to)?;
    done()
}

/// A connection to itself on the loopback interface of its own world.
fn own_tcp(host: &str) -> Outcome {
    let listener = TcpListener::bind((host, 0))?;
    let mut stream = TcpStream::connect_timeout(&listener.local_addr()?, PATIENCE)?;
    let (mut accepted, _) = listener.accept()?;
    stream.write_all(b"x")?;
    accepted.read_exact(&mut [0])?;
    done()
}

fn own_udp() -> Outcome {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send_to(b"x", socket.local_addr()?)?;
    socket.recv_from(&mut [0])?;
    done()
}

/// Listens on the loopback interface until a file appears, and tells whether anybody came.
fn serve(operands: &[String]) -> Outcome {
    let (until, listener) = (place(operands, 0), TcpListener::bind("127.0.0.1:0")?);
    listener.set_nonblocking(true)?;
    say(&format!("ok port {}", listener.local_addr()?.port()));
    while !until.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    match listener.accept() {
        Ok(_) => text("somebody came"),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => text("nobody came"),
        Err(error) => Err(error),
    }
}
