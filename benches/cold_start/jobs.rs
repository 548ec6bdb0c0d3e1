//! What is measured: the same small jobs in Python and in JavaScript.
//!
//! The scripts run unchanged in a sandbox and outside: where inputs and results are is in the environment.

use std::fs;
use std::path::{Path, PathBuf};

/// The language of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Python,
    JavaScript,
}

/// One job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Job {
    Hello,
    Imports,
    Files,
    Loop,
    Endless,
    /// Says "ready" and waits, for a look at its memory.
    Idle,
}

impl Job {
    /// Those that are timed.
    pub(crate) const TIMED: [Job; 5] = [Job::Hello, Job::Imports, Job::Files, Job::Loop, Job::Endless];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Imports => "five imports",
            Self::Files => "file in, file out",
            Self::Loop => "CPU loop",
            Self::Endless => "endless loop, limit 500 ms",
            Self::Idle => "idle",
        }
    }

    /// What a run prints, where it is the same everywhere.
    pub(crate) fn prints(self) -> Option<&'static str> {
        match self {
            Self::Hello => Some("hello\n"),
            Self::Imports => Some("imported\n"),
            Self::Files => Some("2000\n"),
            Self::Loop => Some("46368 499999500000\n"),
            Self::Endless => None,
            Self::Idle => Some("ready\n"),
        }
    }

    fn text(self, language: Language) -> &'static str {
        match (language, self) {
            (Language::Python, Self::Hello) => "print('hello')\n",
            (Language::Python, Self::Imports) => "import json, re, hashlib, csv, pathlib\nprint('imported')\n",
            (Language::Python, Self::Files) => {
                "import csv, json, os\n\
                 rows = json.load(open(os.environ['WORKSPACE_IN'] + '/rows.json'))\n\
                 with open(os.environ['WORKSPACE_OUT'] + '/rows.csv', 'w', newline='') as file:\n\
                 \x20   csv.writer(file).writerows((row['id'], row['name']) for row in rows)\n\
                 print(len(rows))\n"
            }
            (Language::Python, Self::Loop) => {
                "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n\
                 total = 0\n\
                 for i in range(1000000):\n    total += i\n\
                 print(fib(24), total)\n"
            }
            (Language::Python, Self::Endless) => "while True:\n    pass\n",
            (Language::Python, Self::Idle) => "import time\nprint('ready', flush=True)\ntime.sleep(1)\n",
            (Language::JavaScript, Self::Hello) => "console.log('hello')\n",
            (Language::JavaScript, Self::Imports) => {
                "require('fs'); require('path'); require('util'); require('crypto'); require('url')\n\
                 console.log('imported')\n"
            }
            (Language::JavaScript, Self::Files) => {
                "const fs = require('fs')\n\
                 const rows = JSON.parse(fs.readFileSync(process.env.WORKSPACE_IN + '/rows.json', 'utf8'))\n\
                 const lines = rows.map((row) => `${row.id},${row.name}\\r\\n`)\n\
                 fs.writeFileSync(process.env.WORKSPACE_OUT + '/rows.csv', lines.join(''))\n\
                 console.log(String(rows.length))\n"
            }
            (Language::JavaScript, Self::Loop) => {
                "const fib = (n) => n < 2 ? n : fib(n - 1) + fib(n - 2)\n\
                 let total = 0\n\
                 for (let i = 0; i < 1000000; i++) total += i\n\
                 console.log(fib(24) + ' ' + total)\n"
            }
            (Language::JavaScript, Self::Endless) => "for (;;) {}\n",
            (Language::JavaScript, Self::Idle) => "console.log('ready')\nsetTimeout(() => {}, 1000)\n",
        }
    }
}

/// Scripts and input on disk.
pub(crate) struct Material {
    folder: tempfile::TempDir,
}

impl Material {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for language in [Language::Python, Language::JavaScript] {
            for job in Job::TIMED.into_iter().chain([Job::Idle]) {
                fs::write(path(folder.path(), language, job), job.text(language)).unwrap();
            }
        }
        fs::create_dir(folder.path().join("in")).unwrap();
        fs::create_dir(folder.path().join("out")).unwrap();
        let rows: Vec<_> = (0..2000).map(|id| serde_json::json!({"id": id, "name": format!("row {id}")})).collect();
        fs::write(folder.path().join("in/rows.json"), serde_json::to_vec(&rows).unwrap()).unwrap();
        Self { folder }
    }

    pub(crate) fn script(&self, language: Language, job: Job) -> PathBuf {
        path(self.folder.path(), language, job)
    }

    pub(crate) fn input(&self) -> PathBuf {
        self.folder.path().join("in")
    }

    pub(crate) fn output(&self) -> PathBuf {
        self.folder.path().join("out")
    }
}

fn path(folder: &Path, language: Language, job: Job) -> PathBuf {
    let extension = match language {
        Language::Python => "py",
        Language::JavaScript => "js",
    };
    folder.join(format!("{job:?}.{extension}").to_lowercase())
}
