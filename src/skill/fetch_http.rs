//! [`HttpFetcher`]: a [`Fetcher`] over reqwest, for skills.
//!
//! Invariants: no credential, cookie or proxy is taken from the environment; an `https` fetch is never redirected to
//! `http`; bytes are counted as they come, whatever the headers say.

use std::time::Duration;

use async_trait::async_trait;
use bytes::BytesMut;
use reqwest::{Client, StatusCode, redirect};

use super::{FetchRequest, Fetched, Fetcher};
use crate::error::{ErrorKind, Result, SkillRuntimeError};

/// Redirects followed: GitHub needs one.
const MAX_REDIRECTS: usize = 5;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Between two pieces of an answer.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// For all of it: CARL's.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(120);

/// Fetches over HTTP.
#[derive(Debug, Clone)]
pub struct HttpFetcher {
    client: Client,
}

impl HttpFetcher {
    /// A fetcher with skillcell's limits.
    ///
    /// # Errors
    /// [`Backend`](ErrorKind::Backend) when the machine's certificates can't be loaded.
    pub fn new() -> Result<Self> {
        let same_or_safer = redirect::Policy::custom(|attempt| {
            let was_safe = attempt.previous().first().is_some_and(|url| url.scheme() == "https");
            if attempt.previous().len() > MAX_REDIRECTS {
                attempt.error("too many redirects")
            } else if was_safe && attempt.url().scheme() != "https" {
                attempt.error("an https address was redirected to http")
            } else {
                attempt.follow()
            }
        });
        let client = crate::http::client_builder()?
            .redirect(same_or_safer)
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .timeout(TOTAL_TIMEOUT)
            .build()
            .map_err(|error| SkillRuntimeError::backend("could not set up the HTTP client", error))?;
        Ok(Self { client })
    }
}

#[async_trait]
impl Fetcher for HttpFetcher {
    async fn fetch(&self, request: &FetchRequest) -> Result<Fetched> {
        let shown = super::reference::shown(&request.url);
        // The error of reqwest may hold the address, which may hold a token in its query; it is shown without.
        let failed = |error: reqwest::Error| {
            SkillRuntimeError::new(ErrorKind::Unavailable, format!("could not fetch {}", without_query(&shown)))
                .caused_by(error.without_url())
        };
        let mut call = self.client.get(&request.url);
        if let Some(accept) = request.accept {
            call = call.header("accept", accept);
        }
        let mut response = call.send().await.map_err(failed)?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => {
                return Err(SkillRuntimeError::new(
                    ErrorKind::NotFound,
                    format!("{} does not exist", without_query(&shown)),
                ));
            }
            other => {
                return Err(SkillRuntimeError::new(
                    ErrorKind::Unavailable,
                    format!("{} answered {}", without_query(&shown), other.as_u16()),
                ));
            }
        }
        let mut bytes = BytesMut::new();
        while let Some(piece) = response.chunk().await.map_err(failed)? {
            if (bytes.len() + piece.len()) as u64 > request.limit {
                return Err(SkillRuntimeError::new(
                    ErrorKind::LimitExceeded,
                    format!("{} has more than {} bytes", without_query(&shown), request.limit),
                ));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(Fetched { bytes: bytes.freeze() })
    }
}

fn without_query(url: &str) -> &str {
    url.split('?').next().unwrap_or(url)
}
