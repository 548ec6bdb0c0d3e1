//! Whether a container ran out of memory, asked of its daemon.
//!
//! The report of a run says so itself, unless its supervisor or the container's first process was killed too. That happens
//! when the memory is in files of `/tmp` or `/dev/shm`: the kernel kills one process after the other, and none gives any
//! of it back.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use bollard::Docker;
use bollard::query_parameters::EventsOptions;
use futures_util::StreamExt;

/// How long the daemon may take to tell of a kill: it hears of it from the kernel, beside the end of the container.
const TELLING_TIME: Duration = Duration::from_secs(2);

/// Whether the kernel killed a process of the container for want of memory since then. A daemon that keeps no such events
/// (podman) is taken to say no.
pub(super) async fn ran_out_of_memory(docker: &Docker, container: &str, since: SystemTime) -> bool {
    let since = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let only = |value: &str| vec![value.to_owned()];
    let options = EventsOptions {
        // From the events that the daemon remembers on, and then those that come.
        since: Some(format!("{}.{:09}", since.as_secs(), since.subsec_nanos())),
        until: None,
        filters: Some(HashMap::from([("container".to_owned(), only(container)), ("event".to_owned(), only("oom"))])),
    };
    let mut events = std::pin::pin!(docker.events(Some(options)));
    matches!(tokio::time::timeout(TELLING_TIME, events.next()).await, Ok(Some(Ok(_event))))
}
