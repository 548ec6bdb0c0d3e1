//! The HTTP client that fetching and the models' wires share: one TLS provider, nothing from the environment.

use crate::error::{Result, SkillRuntimeError};

/// What a server sees.
const USER_AGENT: &str = concat!("skillcell/", env!("CARGO_PKG_VERSION"));

/// A builder with the parts every client of ours has: our name, ring for TLS, the machine's trusted roots, no proxy.
///
/// # Errors
/// [`Backend`](crate::ErrorKind::Backend) when TLS can't be set up.
pub(crate) fn client_builder() -> Result<reqwest::ClientBuilder> {
    // A process may have chosen a provider already; ours is only for those that haven't.
    if rustls::crypto::CryptoProvider::get_default().is_none()
        && rustls::crypto::ring::default_provider().install_default().is_err()
        && rustls::crypto::CryptoProvider::get_default().is_none()
    {
        return Err(SkillRuntimeError::new(crate::ErrorKind::Backend, "could not set up TLS"));
    }
    Ok(reqwest::Client::builder().user_agent(USER_AGENT).no_proxy())
}
