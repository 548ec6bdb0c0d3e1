//! Reads a CSV of packages and their sizes and writes a report: `report.md` for people, `summary.json` for programs.
//!
//! Exit codes: 0 done, 2 the input is missing or wrong, 1 the results can't be written.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::process::ExitCode;

use serde_json::json;
use skillcell_guest::{Align, Markdown, Workspace};

/// A larger input is an error and not a run out of memory: a table like this one with a million rows is half of it.
const MAX_INPUT_BYTES: u64 = 128 << 20;
/// How many packages the report names.
const LARGEST: usize = 10;

fn main() -> ExitCode {
    match run(&Workspace::from_env(), std::env::args().nth(1)) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(Failure::Input(why)) => {
            eprintln!("report: {why}");
            ExitCode::from(2)
        }
        Err(Failure::Output(why)) => {
            eprintln!("report: {why}");
            ExitCode::from(1)
        }
    }
}

enum Failure {
    Input(String),
    Output(String),
}

fn input(why: impl fmt::Display) -> Failure {
    Failure::Input(why.to_string())
}

/// One row, as far as the report needs it.
struct Package {
    name: String,
    section: String,
    installed_kib: Option<u64>,
    download_bytes: Option<u64>,
}

/// The figures of one section.
#[derive(Default)]
struct Section {
    packages: u64,
    installed_kib: Vec<u64>,
    download_bytes: u64,
}

impl Section {
    fn total_kib(&self) -> u64 {
        self.installed_kib.iter().fold(0, |sum, kib| sum.saturating_add(*kib))
    }

    /// The lower of the two middle values where there are two; `None` when no size is known.
    fn median_kib(&self) -> Option<u64> {
        let mut sorted = self.installed_kib.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len().saturating_sub(1) / 2).copied()
    }
}

fn run(workspace: &Workspace, named: Option<String>) -> Result<String, Failure> {
    let name = match named {
        Some(name) => name,
        None => only_csv(workspace)?,
    };
    let packages = read(workspace, &name)?;
    let mut sections: BTreeMap<&str, Section> = BTreeMap::new();
    let mut without_size = 0_u64;
    for package in &packages {
        let section = sections.entry(&package.section).or_default();
        section.packages += 1;
        section.installed_kib.extend(package.installed_kib);
        section.download_bytes = section.download_bytes.saturating_add(package.download_bytes.unwrap_or(0));
        without_size += u64::from(package.installed_kib.is_none() || package.download_bytes.is_none());
    }
    let installed_kib = sections.values().fold(0_u64, |sum, section| sum.saturating_add(section.total_kib()));
    let download_bytes = sections.values().fold(0_u64, |sum, section| sum.saturating_add(section.download_bytes));
    let mut largest: Vec<&Package> = packages.iter().collect();
    largest.sort_by(|one, other| other.installed_kib.cmp(&one.installed_kib).then_with(|| one.name.cmp(&other.name)));
    largest.truncate(LARGEST);

    let mut report = Markdown::new();
    report
        .heading(1, &format!("Packages in {name}"))
        .paragraph(&format!(
            "{} packages in {} sections: {} installed, {} to download.",
            packages.len(),
            sections.len(),
            mebibytes(installed_kib),
            mebibytes(download_bytes / 1024),
        ));
    if without_size > 0 {
        report.paragraph(&format!("{without_size} rows lack a size; they count as packages and add nothing to the sums."));
    }
    report.heading(2, "By section").table(
        &[
            ("section", Align::Left),
            ("packages", Align::Right),
            ("installed", Align::Right),
            ("median", Align::Right),
            ("download", Align::Right),
        ],
        sections.iter().map(|(name, section)| {
            [
                (*name).to_owned(),
                section.packages.to_string(),
                mebibytes(section.total_kib()),
                section.median_kib().map_or_else(|| "unknown".to_owned(), |kib| format!("{kib} KiB")),
                mebibytes(section.download_bytes / 1024),
            ]
        }),
    );
    report.heading(2, "Largest").table(
        &[("package", Align::Left), ("section", Align::Left), ("installed", Align::Right)],
        largest.iter().map(|package| {
            let size = package.installed_kib.map_or_else(|| "unknown".to_owned(), mebibytes);
            [package.name.clone(), package.section.clone(), size]
        }),
    );
    let summary = json!({
        "input": name,
        "packages": packages.len(),
        "rows_without_size": without_size,
        "installed_kib": installed_kib,
        "download_bytes": download_bytes,
        "sections": sections.iter().map(|(name, section)| json!({
            "section": name,
            "packages": section.packages,
            "installed_kib": section.total_kib(),
            "median_installed_kib": section.median_kib(),
            "download_bytes": section.download_bytes,
        })).collect::<Vec<_>>(),
        "largest": largest.iter().map(|package| json!({
            "package": package.name,
            "section": package.section,
            "installed_kib": package.installed_kib,
        })).collect::<Vec<_>>(),
    });
    let summary = format!("{summary:#}\n");
    for (name, content) in [("report.md", report.as_str()), ("summary.json", summary.as_str())] {
        workspace.write_output(name, content).map_err(|error| Failure::Output(error.to_string()))?;
    }
    Ok(format!(
        "{name}: {} packages in {} sections, {} installed; wrote report.md and summary.json",
        packages.len(),
        sections.len(),
        mebibytes(installed_kib),
    ))
}

/// The one CSV among the inputs.
fn only_csv(workspace: &Workspace) -> Result<String, Failure> {
    let inputs = workspace.inputs().map_err(input)?;
    let found: Vec<&str> =
        inputs.iter().map(|input| input.name()).filter(|name| name.to_ascii_lowercase().ends_with(".csv")).collect();
    match found.as_slice() {
        [name] => Ok((*name).to_owned()),
        [] => Err(input("no CSV among the inputs; give one with --in")),
        several => Err(input(format!("{} CSVs among the inputs; name one as argument: {}", several.len(), several.join(", ")))),
    }
}

fn read(workspace: &Workspace, name: &str) -> Result<Vec<Package>, Failure> {
    let file = workspace.open_input(name).map_err(input)?;
    if file.metadata().is_ok_and(|data| data.len() > MAX_INPUT_BYTES) {
        return Err(input(format!("{name} is larger than {MAX_INPUT_BYTES} bytes; split it")));
    }
    let mut table = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(file.take(MAX_INPUT_BYTES));
    let titles = table.headers().map_err(|error| input(format!("{name}: {error}")))?.clone();
    let column = |title: &str| {
        // A byte order mark is part of the first title where a spreadsheet wrote the file.
        titles.iter().position(|found| found.trim_start_matches('\u{feff}') == title).ok_or_else(|| {
            let found: Vec<_> = titles.iter().collect();
            input(format!("{name} has no column '{title}'; it has: {}", found.join(", ")))
        })
    };
    let (package, section) = (column("package")?, column("section")?);
    let (installed, download) = (column("installed_kib")?, column("download_bytes")?);
    let mut packages = Vec::new();
    for row in table.records() {
        let row = row.map_err(|error| input(format!("{name}: {error}")))?;
        let line = row.position().map_or(0, csv::Position::line);
        let number = |column: usize, title: &str| match row.get(column).unwrap_or("") {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| input(format!("{name}, line {line}: {title} is '{}', not a whole number", text.escape_debug()))),
        };
        packages.push(Package {
            name: row.get(package).unwrap_or("").to_owned(),
            section: row.get(section).unwrap_or("").to_owned(),
            installed_kib: number(installed, "installed_kib")?,
            download_bytes: number(download, "download_bytes")?,
        });
    }
    if packages.is_empty() { Err(input(format!("{name} has titles but no rows"))) } else { Ok(packages) }
}

/// KiB as MiB with one decimal.
fn mebibytes(kib: u64) -> String {
    let tenths = kib.saturating_mul(10).saturating_add(512) / 1024;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}
