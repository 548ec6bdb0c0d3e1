//! The only matcher and normaliser of host names. Text that names a host is turned into one canonical form
//! here, once; nothing else compares host text.
//!
//! Rules and messages are CARL's (`normalize_network_host`): exact names or addresses, no patterns, no ports.

use std::net::IpAddr;

use crate::error::{Result, SkillRuntimeError};

/// The longest host name in DNS presentation form (RFC 1035 section 3.1).
const MAX_HOST_LENGTH: usize = 253;
/// The longest label (RFC 1035 section 2.3.4).
const MAX_LABEL_LENGTH: usize = 63;
/// The most hosts one allow list may hold: more is a mistake, and every check is linear in it.
const MAX_HOSTS: usize = 1_024;

/// Brings a host name or IP address to its canonical form: trimmed, one trailing dot dropped, lower case,
/// addresses compressed.
///
/// Refused: anything that isn't an exact name (schemes, paths, ports, wildcards, brackets, zone ids, white space,
/// NUL), non-ASCII names (give the IDNA A-label), digits-and-dots that aren't an address, empty or over-long labels.
///
/// # Errors
/// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) with CARL's words.
///
/// ```
/// use skillcell::policy::normalize_network_host;
/// assert_eq!(normalize_network_host(" API.Example.com. ").unwrap(), "api.example.com");
/// assert_eq!(normalize_network_host("0:0::1").unwrap(), "::1");
/// assert!(normalize_network_host("example.com:443").is_err());
/// ```
pub fn normalize_network_host(value: &str) -> Result<String> {
    let exact = || {
        SkillRuntimeError::invalid(format!(
            "network allowlist entries must be exact hostnames or IPs: '{}'",
            value.escape_debug()
        ))
    };
    let trimmed = value.trim();
    let host = trimmed.strip_suffix('.').unwrap_or(trimmed);
    if host.is_empty() {
        return Err(exact());
    }
    let forbidden = |c: char| c.is_whitespace() || matches!(c, '\0' | '/' | '*' | '%' | '[' | ']');
    if host.contains(forbidden) || host.contains("://") {
        return Err(exact());
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    if host.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(exact());
    }
    if !host.is_ascii() {
        return Err(SkillRuntimeError::invalid(format!(
            "network allowlist host '{}' must be ASCII; use an explicit IDNA A-label",
            host.escape_debug()
        )));
    }
    let host = host.to_ascii_lowercase();
    let label_is_fine = |label: &str| {
        (1..=MAX_LABEL_LENGTH).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if host.len() > MAX_HOST_LENGTH || !host.split('.').all(label_is_fine) {
        return Err(exact());
    }
    Ok(host)
}

/// Normalises a whole list: sorted, at least one entry, no two that mean the same host.
///
/// # Errors
/// [`InvalidConfig`](crate::ErrorKind::InvalidConfig): an empty list, a duplicate after normalising, a bad entry.
pub fn normalize_network_allowlist_hosts<S: AsRef<str>>(hosts: &[S]) -> Result<Vec<String>> {
    if hosts.is_empty() {
        return Err(SkillRuntimeError::invalid("a managed network allowlist must contain at least one host"));
    }
    if hosts.len() > MAX_HOSTS {
        return Err(SkillRuntimeError::invalid(format!(
            "a network allowlist may hold at most {MAX_HOSTS} hosts, got {}",
            hosts.len()
        )));
    }
    let mut normalized = hosts.iter().map(|host| normalize_network_host(host.as_ref())).collect::<Result<Vec<_>>>()?;
    normalized.sort();
    if normalized.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(SkillRuntimeError::invalid("network allowlist contains duplicate normalized hosts"));
    }
    Ok(normalized)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_forms() {
        for (given, expected) in [
            ("example.com", "example.com"),
            ("EXAMPLE.COM.", "example.com"),
            ("  a-b.c1 ", "a-b.c1"),
            ("localhost", "localhost"),
            ("169.254.169.254", "169.254.169.254"),
            ("::1", "::1"),
            ("2001:DB8:0:0::1", "2001:db8::1"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ] {
            assert_eq!(normalize_network_host(given).unwrap(), expected, "{given}");
        }
    }

    #[test]
    fn everything_that_is_no_exact_host_is_refused() {
        let long_label = "a".repeat(64);
        let long_name = ["abcdefgh"; 29].join(".");
        for given in [
            "",
            " ",
            ".",
            "a..",
            "a..b",
            "https://a.com",
            "a.com/x",
            "*.a.com",
            "*",
            "a.com:443",
            "[::1]",
            "fe80::1%eth0",
            "a b.com",
            "a\0b.com",
            "a\tb",
            "1.2.3",
            "1.2.3.4.5",
            "999.1.1.1",
            "-a.com",
            "a-.com",
            "a_b.com",
            "a@b.com",
            &long_label,
            &long_name,
        ] {
            let error = normalize_network_host(given).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("network allowlist entries must be exact hostnames or IPs: '{}'", given.escape_debug()),
                "{given:?}"
            );
        }
        assert_eq!(
            normalize_network_host("bücher.example").unwrap_err().to_string(),
            "network allowlist host 'bücher.example' must be ASCII; use an explicit IDNA A-label"
        );
    }

    #[test]
    fn lists_are_sorted_and_unique() {
        assert_eq!(normalize_network_allowlist_hosts(&["b.com", "A.com"]).unwrap(), ["a.com", "b.com"]);
        assert_eq!(
            normalize_network_allowlist_hosts(&["a.com", "A.com."]).unwrap_err().to_string(),
            "network allowlist contains duplicate normalized hosts"
        );
        assert_eq!(
            normalize_network_allowlist_hosts::<&str>(&[]).unwrap_err().to_string(),
            "a managed network allowlist must contain at least one host"
        );
    }
}
