//! The network part of a policy: CARL's three words and the rule that turns a step's configuration into one of
//! them plus a list of hosts.

use std::fmt;

use serde_json::Value;

use super::allowed_tools::{AllowedTools, parse_network_allowlist_from_allowed_tools};
use super::host::normalize_network_host;
use crate::error::{Result, SkillRuntimeError};

/// Where a run may connect to. The default is `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkPolicy {
    /// Nowhere.
    #[default]
    None,
    /// To the listed hosts only, through the egress gateway.
    Allowlist,
    /// Wherever the host machine can: an escape hatch.
    Host,
}

impl NetworkPolicy {
    /// The word as it stands in configurations.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Allowlist => "allowlist",
            Self::Host => "host",
        }
    }
}

impl fmt::Display for NetworkPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for NetworkPolicy {
    type Err = SkillRuntimeError;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "none" => Ok(Self::None),
            "allowlist" => Ok(Self::Allowlist),
            "host" => Ok(Self::Host),
            other => Err(unknown_policy(&format!("'{}'", other.escape_debug()))),
        }
    }
}

fn unknown_policy(shown: &str) -> SkillRuntimeError {
    SkillRuntimeError::invalid(format!("Unknown network policy {shown}. Valid options: 'none', 'allowlist', 'host'."))
}

/// A policy with its hosts: normalised, sorted, unique; empty unless the policy is `allowlist`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResolvedNetwork {
    /// The policy.
    pub policy: NetworkPolicy,
    /// The hosts, in canonical form.
    pub allowlist: Vec<String>,
}

/// Turns a `runtime_config` (and, if the caller passes it, the manifest's `allowed-tools`) into a policy.
///
/// `runtime_config["network"]` absent means `default`. With `allowlist`, `runtime_config["network_allowlist"]` and
/// the manifest's `WebFetch(domain:…)` hosts are merged, normalised and sorted; both empty is an error. With the
/// other two the result has no hosts.
///
/// Passing `manifest_allowed_tools` is consent: a manifest is written by somebody else, and its hosts widen what
/// the caller listed. CARL always merges; skillcell's step merges only when told to.
///
/// # Errors
/// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) with CARL's words: an unknown policy, a list that is no list,
/// an empty list, an entry that is no exact host. Unlike CARL, a list given beside a policy that ignores it is an
/// error too, rather than dropped without a word.
///
/// ```
/// use serde_json::json;
/// use skillcell::policy::{NetworkPolicy, resolve_network_policy};
/// let config = json!({"network": "allowlist", "network_allowlist": ["API.example.com"]});
/// let network = resolve_network_policy(config.as_object().unwrap(), None, NetworkPolicy::None).unwrap();
/// assert_eq!(network.allowlist, ["api.example.com"]);
/// ```
pub fn resolve_network_policy(
    runtime_config: &serde_json::Map<String, Value>,
    manifest_allowed_tools: Option<&AllowedTools>,
    default: NetworkPolicy,
) -> Result<ResolvedNetwork> {
    let policy = match runtime_config.get("network") {
        None => default,
        Some(Value::String(word)) => word.parse()?,
        Some(other) => return Err(unknown_policy(&other.to_string())),
    };
    let listed = listed_hosts(runtime_config.get("network_allowlist"))?;
    if policy != NetworkPolicy::Allowlist {
        if !listed.is_empty() {
            return Err(SkillRuntimeError::invalid(format!(
                "runtime_config['network_allowlist'] is given but the network policy is '{policy}'; set 'network' to 'allowlist' or remove the list"
            )));
        }
        return Ok(ResolvedNetwork { policy, allowlist: Vec::new() });
    }
    let mut allowlist = listed
        .into_iter()
        .chain(parse_network_allowlist_from_allowed_tools(manifest_allowed_tools))
        .map(|host| {
            normalize_network_host(&host)
                .map_err(|error| SkillRuntimeError::invalid(format!("invalid network allowlist: {error}")))
        })
        .collect::<Result<Vec<_>>>()?;
    if allowlist.is_empty() {
        return Err(SkillRuntimeError::invalid(
            "invalid network allowlist: a managed network allowlist must contain at least one host",
        ));
    }
    allowlist.sort();
    allowlist.dedup();
    Ok(ResolvedNetwork { policy, allowlist })
}

/// The entries of `network_allowlist`, trimmed, empties dropped. Only strings count: CARL turned numbers and maps
/// into text, which can only be a mistake.
fn listed_hosts(value: Option<&Value>) -> Result<Vec<String>> {
    let not_a_list =
        || SkillRuntimeError::invalid("runtime_config['network_allowlist'] must be a list of host strings.");
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(entries)) => entries
            .iter()
            .map(|entry| entry.as_str().map(|host| host.trim().to_owned()).ok_or_else(not_a_list))
            .filter(|host| !matches!(host, Ok(host) if host.is_empty()))
            .collect(),
        Some(_) => Err(not_a_list()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resolve(config: Value, tools: Option<&str>) -> Result<(NetworkPolicy, Vec<String>)> {
        let tools = tools.map(AllowedTools::from);
        let config = config.as_object().cloned().unwrap_or_default();
        resolve_network_policy(&config, tools.as_ref(), NetworkPolicy::None)
            .map(|network| (network.policy, network.allowlist))
    }

    #[test]
    fn carls_rule() {
        assert_eq!(resolve(json!({}), None).unwrap(), (NetworkPolicy::None, vec![]));
        assert_eq!(
            resolve(json!({"network": "host"}), Some("WebFetch(domain:a.com)")).unwrap(),
            (NetworkPolicy::Host, vec![])
        );
        assert_eq!(
            resolve(
                json!({"network": "allowlist", "network_allowlist": [" B.com ", "", "a.com", "a.com"]}),
                Some("WebFetch(domain:c.com)")
            )
            .unwrap(),
            (NetworkPolicy::Allowlist, vec!["a.com".into(), "b.com".into(), "c.com".into()])
        );
        assert_eq!(resolve(json!({"network": "allowlist"}), Some("WebFetch(domain:c.com)")).unwrap().1, ["c.com"]);
    }

    #[test]
    fn carls_messages() {
        for (config, message) in [
            (json!({"network": "bad"}), "Unknown network policy 'bad'. Valid options: 'none', 'allowlist', 'host'."),
            (json!({"network": null}), "Unknown network policy null. Valid options: 'none', 'allowlist', 'host'."),
            (
                json!({"network": "allowlist", "network_allowlist": "a.com"}),
                "runtime_config['network_allowlist'] must be a list of host strings.",
            ),
            (
                json!({"network": "allowlist", "network_allowlist": [1]}),
                "runtime_config['network_allowlist'] must be a list of host strings.",
            ),
            (
                json!({"network": "allowlist"}),
                "invalid network allowlist: a managed network allowlist must contain at least one host",
            ),
            (
                json!({"network": "allowlist", "network_allowlist": ["a:1"]}),
                "invalid network allowlist: network allowlist entries must be exact hostnames or IPs: 'a:1'",
            ),
            (
                json!({"network_allowlist": ["a.com"]}),
                "runtime_config['network_allowlist'] is given but the network policy is 'none'; set 'network' to 'allowlist' or remove the list",
            ),
        ] {
            assert_eq!(resolve(config, None).unwrap_err().to_string(), message);
        }
    }
}
