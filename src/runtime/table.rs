//! The table of which runtime enforces what, for the command and the README. Made from the declarations alone, so it
//! can't say anything else than the gate does.

use super::RuntimeRegistry;
use crate::error::Result;
use crate::policy::{MountCapabilities, RuntimeCapabilities, Support};

/// What each registered runtime enforces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnforcementTable {
    /// Names, sorted, with their declarations.
    columns: Vec<(String, RuntimeCapabilities)>,
}

/// Asks every registered runtime for its declaration. Starts nothing.
///
/// # Errors
/// None with a consistent registry; the look-up of a name that was just listed can't fail.
pub fn enforcement_table(registry: &RuntimeRegistry) -> Result<EnforcementTable> {
    let columns = registry
        .names()
        .into_iter()
        .map(|name| Ok((name.to_owned(), registry.get(name)?.capabilities())))
        .collect::<Result<_>>()?;
    Ok(EnforcementTable { columns })
}

/// The rows: what is confined, and the words for it.
fn rows(capabilities: &RuntimeCapabilities) -> [(&'static str, Support); 13] {
    // A struct pattern, so that a new field can't be left out.
    let RuntimeCapabilities {
        isolation: _,
        files,
        network_none,
        network_allowlist,
        wall_time,
        cpu_time,
        fuel,
        memory,
        processes,
        output,
        disk,
        mounts: MountCapabilities { read_only, read_write, without_delete },
    } = *capabilities;
    [
        ("files: only the workspace", files),
        ("network `none`", network_none),
        ("network `allowlist`", network_allowlist),
        ("wall-clock time", wall_time),
        ("processor time", cpu_time),
        ("fuel", fuel),
        ("memory", memory),
        ("processes", processes),
        ("output", output),
        ("disk", disk),
        ("mounts `ro`", read_only),
        ("mounts `rw`, `cow`", read_write),
        ("mounts `rw-no-delete`", without_delete),
    ]
}

fn word(support: Support) -> &'static str {
    match support {
        Support::Enforced => "enforced",
        Support::Advisory => "advisory",
        Support::Unsupported => "no",
    }
}

impl EnforcementTable {
    /// One runtime's declarations as row name and word.
    #[must_use]
    pub fn column(&self, runtime: &str) -> serde_json::Map<String, serde_json::Value> {
        let capabilities = self.columns.iter().find(|(name, _)| name == runtime).map(|(_, capabilities)| capabilities);
        capabilities
            .into_iter()
            .flat_map(rows)
            .map(|(row, support)| (row.replace('`', ""), word(support).into()))
            .collect()
    }

    /// As Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let cells = self.cells();
        let mut text = String::new();
        for (index, row) in cells.iter().enumerate() {
            text.push_str(&format!("| {} |\n", row.join(" | ")));
            if index == 0 {
                text.push_str(&format!("|{}\n", "---|".repeat(row.len())));
            }
        }
        text
    }

    /// As aligned text for a terminal.
    #[must_use]
    pub fn plain(&self) -> String {
        let cells: Vec<Vec<String>> =
            self.cells().into_iter().map(|row| row.into_iter().map(|cell| cell.replace('`', "")).collect()).collect();
        let columns = cells.first().map_or(0, Vec::len);
        let widths: Vec<usize> = (0..columns)
            .map(|column| cells.iter().map(|row| row.get(column).map_or(0, String::len)).max().unwrap_or(0))
            .collect();
        let mut text = String::new();
        for row in &cells {
            let line: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            text.push_str(line.join("  ").trim_end());
            text.push('\n');
        }
        text
    }

    fn cells(&self) -> Vec<Vec<String>> {
        let mut cells = vec![
            std::iter::once(String::new())
                .chain(self.columns.iter().map(|(name, _)| format!("`{name}`")))
                .collect::<Vec<_>>(),
        ];
        let names = rows(&RuntimeCapabilities::none(crate::policy::Isolation::Unknown)).map(|(name, _)| name);
        for (index, name) in names.into_iter().enumerate() {
            let words = self.columns.iter().map(|(_, capabilities)| word(rows(capabilities)[index].1).to_owned());
            cells.push(std::iter::once(name.to_owned()).chain(words).collect());
        }
        cells
    }
}
