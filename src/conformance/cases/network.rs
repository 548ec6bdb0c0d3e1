//! The network: from the loopback interface of the host, where the suite itself listens, so that what gets through is
//! seen from outside too. Nothing here is sent anywhere else.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use crate::conformance::case::{Case, Fault, Group, Setting, Verdict, broken, ensure, written};
use crate::conformance::probe::Answer;
use crate::conformance::world::World;
use crate::policy::{Dimension, Isolation};

const fn denied(name: &'static str, attempt: &'static [&'static str], twin: &'static [&'static str]) -> Case {
    Case::denied(Group::Network, name, attempt, twin).claims(Dimension::Network)
}

const fn case(name: &'static str, written: crate::conformance::case::Written) -> Case {
    Case::written(Group::Network, name, written).claims(Dimension::Network)
}

/// A socket that is allowed: to itself.
const OWN: &[&str] = &["own-tcp 127.0.0.1"];

pub(super) const CASES: &[Case] = &[
    case("the_hosts_loopback_is_not_reached", written!(loopback)),
    case("the_hosts_loopback_is_not_reached_by_ipv6", written!(loopback6)),
    case("the_hosts_loopback_is_not_reached_as_any_address", written!(any_address)),
    case("the_hosts_loopback_is_not_reached_by_mapped_address", written!(mapped)),
    case("the_hosts_loopback_is_not_reached_from_a_child", written!(from_child)),
    case("no_datagram_reaches_the_host", written!(datagram)),
    case("no_socket_with_a_path_is_reached", written!(unix)),
    case("no_socket_with_a_name_is_reached", written!(abstract_name)),
    case("a_listener_of_the_guest_is_not_reached", written!(inbound)),
    case("no_other_interface_is_there", written!(interfaces)),
    case("no_proxy_is_told", written!(proxies)),
    denied("packets_cannot_be_made", &["raw packet"], OWN),
    denied("icmp_cannot_be_made", &["raw icmp"], OWN),
    Case::written(Group::Network, "the_host_network_is_given_when_asked_for", written!(host_policy))
        .in_setting(Setting::HostNetwork),
    case("an_allow_list_lets_nothing_else_through", written!(unlisted)).in_setting(Setting::Listed),
];

fn failed(error: io::Error) -> Fault {
    Fault::Broken(format!("no listener on the loopback interface: {error}"))
}

/// Whether anybody came.
fn reached(listener: &TcpListener) -> Result<bool, Fault> {
    listener.set_nonblocking(true).map_err(failed)?;
    match listener.accept() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

/// A step that must not be done, on sockets of the guest's machine; the twin is a connection to itself.
async fn refused(world: &World<'_>, step: &str, twin: &str) -> Verdict {
    let ran = world.steps(&["arguments", step]).await?;
    let why = match ran.answers.as_slice() {
        [Answer::Done(_), Answer::Absent] => return Ok("a guest of this runtime has no sockets".to_owned()),
        [Answer::Done(_), Answer::Refused(how)] => format!("refused: {how}"),
        [Answer::Done(_)] => format!("the guest was ended: {}", ran.result.termination),
        _ => return broken(format!("it got through: {}", ran.told())),
    };
    world.must(&[twin]).await?;
    Ok(why)
}

async fn tcp(world: &World<'_>, listener: &TcpListener, to: SocketAddr, verb: &str) -> Verdict {
    let why = refused(world, &format!("{verb} {to}"), OWN[0]).await?;
    ensure(!reached(listener)?, || "a connection reached the host".to_owned())?;
    // The listener does hear: the host itself gets through.
    let own = listener.local_addr().map_err(failed)?;
    TcpStream::connect(own).map_err(failed)?;
    Ok(why)
}

async fn loopback(world: &World<'_>) -> Verdict {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let to = listener.local_addr().map_err(failed)?;
    tcp(world, &listener, to, "tcp").await
}

async fn loopback6(world: &World<'_>) -> Verdict {
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        // A host without IPv6 has nothing to reach; the guest must not get anywhere all the same.
        return refused(world, "tcp [::1]:9", OWN[0]).await;
    };
    let to = listener.local_addr().map_err(failed)?;
    tcp(world, &listener, to, "tcp").await
}

async fn any_address(world: &World<'_>) -> Verdict {
    let listener = TcpListener::bind("0.0.0.0:0").map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let why = refused(world, &format!("tcp 0.0.0.0:{port}"), OWN[0]).await?;
    ensure(!reached(&listener)?, || "a connection reached the host".to_owned())?;
    Ok(why)
}

async fn mapped(world: &World<'_>) -> Verdict {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), port));
    tcp(world, &listener, to, "tcp").await
}

async fn from_child(world: &World<'_>) -> Verdict {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let to = listener.local_addr().map_err(failed)?;
    tcp(world, &listener, to, "child tcp").await
}

async fn datagram(world: &World<'_>) -> Verdict {
    let socket = UdpSocket::bind("127.0.0.1:0").map_err(failed)?;
    let to = socket.local_addr().map_err(failed)?;
    // Sending may succeed: what counts is that nothing arrives.
    let ran = world.steps(&["arguments", &format!("udp {to} probe")]).await?;
    ensure(!ran.answers.is_empty(), || format!("the probe did not start: {}", ran.told()))?;
    socket.set_nonblocking(true).map_err(failed)?;
    let arrived = socket.recv_from(&mut [0; 16]).is_ok();
    ensure(!arrived, || "a datagram reached the host".to_owned())?;
    if ran.answers.get(1) != Some(&Answer::Absent) {
        world.must(&["own-udp"]).await?;
    }
    // The socket does hear.
    UdpSocket::bind("127.0.0.1:0").and_then(|own| own.send_to(b"x", to)).map_err(failed)?;
    Ok("none arrives".to_owned())
}

/// A socket of the host in a folder that anybody may enter.
#[cfg(target_os = "linux")]
async fn unix(world: &World<'_>) -> Verdict {
    let path = world.outside.path.join("sub").join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).map_err(failed)?;
    let verdict = refused(world, "unix {outside}/sub/socket", "read @in/input.txt").await;
    world.outside.folder.remove_file("sub/socket").map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    ensure(listener.accept().is_err(), || "a connection reached the host".to_owned())?;
    verdict
}

#[cfg(target_os = "linux")]
async fn abstract_name(world: &World<'_>) -> Verdict {
    use std::os::linux::net::SocketAddrExt;
    let name =
        format!("skillcell-conformance-{}", crate::audit::RunId::random().map_err(|e| Fault::Broken(e.to_string()))?);
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).map_err(failed)?;
    let listener = std::os::unix::net::UnixListener::bind_addr(&address).map_err(failed)?;
    let verdict = refused(world, &format!("unix abstract {name}"), "read @in/input.txt").await?;
    listener.set_nonblocking(true).map_err(failed)?;
    ensure(listener.accept().is_err(), || "a connection reached the host".to_owned())?;
    Ok(verdict)
}

#[cfg(not(target_os = "linux"))]
async fn unix(world: &World<'_>) -> Verdict {
    refused(world, "unix {outside}/sub/socket", "read @in/input.txt").await
}

#[cfg(not(target_os = "linux"))]
async fn abstract_name(world: &World<'_>) -> Verdict {
    refused(world, "unix abstract skillcell-conformance", "read @in/input.txt").await
}

/// The guest listens, and the host tries the port while it does.
async fn inbound(world: &World<'_>) -> Verdict {
    use std::sync::{Arc, Mutex, PoisonError};

    use crate::runtime::{OutputSink, Stream};

    #[derive(Default)]
    struct Lines(Mutex<Vec<u8>>);
    impl OutputSink for Lines {
        fn write(&self, _stream: Stream, bytes: &[u8]) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        }
    }
    let lines = Arc::new(Lines::default());
    let mut command = world.command(&["serve @tmp/go"])?;
    command.sink = Some(lines.clone());
    let port = async {
        loop {
            let text = String::from_utf8_lossy(&lines.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned();
            if let Some(port) = text.strip_prefix("ok port ").and_then(|rest| rest.split_once('\n')) {
                return port.0.parse::<u16>().ok();
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let run = Box::pin(world.run(&command));
    let (port, run) = match futures_util::future::select(Box::pin(port), run).await {
        futures_util::future::Either::Left((port, run)) => (port, run),
        futures_util::future::Either::Right((ran, _)) => {
            let ran = ran?;
            return match ran.answers.first() {
                Some(Answer::Absent) => Ok("a guest of this runtime has no sockets".to_owned()),
                Some(Answer::Refused(how)) => Ok(format!("the guest can't listen: {how}")),
                _ => broken(format!("the probe did not start: {}", ran.told())),
            };
        }
    };
    let port = port.ok_or_else(|| Fault::Broken("the guest told no port".to_owned()))?;
    // Another program of the host may have that port; so what the guest saw is what counts.
    let _ =
        TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), std::time::Duration::from_secs(5));
    let go = "/workspace/tmp/go".parse().map_err(|_| Fault::Broken("no path".to_owned()))?;
    world.runtime().write_file(&world.handle, &go, b"x").await.map_err(|error| Fault::Broken(error.to_string()))?;
    let told = run.await?.all_done(2)?;
    ensure(told == "nobody came", || "the host reached a listener of the guest".to_owned())?;
    Ok("nobody comes".to_owned())
}

async fn interfaces(world: &World<'_>) -> Verdict {
    let ran = world.steps(&["arguments", "read /proc/net/dev"]).await?;
    ensure(ran.answers.len() == 2, || format!("the probe did not start: {}", ran.told()))?;
    let table = ran.answers.last().and_then(Answer::text).unwrap_or_default();
    let names: Vec<&str> = table.lines().filter_map(|line| line.split_once(':').map(|(name, _)| name.trim())).collect();
    // Tunnels that the kernel makes in every new world lead nowhere.
    const NOWHERE: [&str; 10] =
        ["lo", "tunl0", "sit0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6tnl0", "ip6gre0"];
    let others: Vec<&&str> = names.iter().filter(|name| !NOWHERE.contains(name)).collect();
    ensure(others.is_empty(), || format!("the guest has {others:?}"))?;
    Ok("only its own loopback interface, or none".to_owned())
}

async fn proxies(world: &World<'_>) -> Verdict {
    let told = world.must(&["environment"]).await?.to_ascii_lowercase();
    let proxy = told.lines().find(|line| line.split('=').next().is_some_and(|name| name.ends_with("_proxy")));
    ensure(proxy.is_none(), || format!("{proxy:?} is set"))?;
    Ok("none".to_owned())
}

/// The twin of all others: what is refused without it works with network policy `host`.
async fn host_policy(world: &World<'_>) -> Verdict {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let to = listener.local_addr().map_err(failed)?;
    let ran = world.steps(&[&format!("tcp {to}")]).await?;
    match ran.answers.first() {
        Some(Answer::Absent) => Ok("a guest of this runtime has no sockets".to_owned()),
        Some(Answer::Done(_)) if reached(&listener)? => Ok("the same connection reaches the host".to_owned()),
        _ if world.runtime().capabilities().isolation == Isolation::Microvm => {
            Ok("the host of this runtime is another machine".to_owned())
        }
        _ => broken(format!("it does not reach the host: {}", ran.told())),
    }
}

async fn unlisted(world: &World<'_>) -> Verdict {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let to = listener.local_addr().map_err(failed)?;
    tcp(world, &listener, to, "tcp").await
}
