//! [`Fetcher`]: the one way skills come over the network, small enough to be replaced by an embedder's own client.
//!
//! Invariant: a fetch is bounded in bytes and time, and never sends what the caller didn't give.

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::Result;

/// What is fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchRequest {
    /// An `http` or `https` address.
    pub url: String,
    /// The `Accept` header, where the answer depends on it.
    pub accept: Option<&'static str>,
    /// The most bytes of an answer.
    pub limit: u64,
}

/// What came back, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The body.
    pub bytes: Bytes,
}

/// Fetches addresses.
#[async_trait]
pub trait Fetcher: Send + Sync {
    /// Fetches one address.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), [`LimitExceeded`](crate::ErrorKind::LimitExceeded),
    /// [`Unavailable`](crate::ErrorKind::Unavailable) (no connection, another status).
    async fn fetch(&self, request: &FetchRequest) -> Result<Fetched>;
}
