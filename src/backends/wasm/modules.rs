//! What the built-in Python can import, known without starting it.
//!
//! Invariant: the list is what the interpreter itself says; a test asks it.

use super::packs;

/// One name a line, as the interpreter of the pack printed them.
#[cfg(feature = "pack-python")]
const PYTHON: &str = include_str!("../../../wasm-tools/packs/python/modules.txt");
#[cfg(not(feature = "pack-python"))]
const PYTHON: &str = "";
/// The language whose modules are known.
const LANGUAGE: &str = "Python";

/// The modules at the top that `program` can import, sorted. `None` when it isn't a built-in Python.
pub(super) fn of_program(program: &str) -> Option<Vec<&'static str>> {
    let pack = packs::find(program).ok().flatten()?;
    (pack.language() == LANGUAGE).then(|| PYTHON.lines().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_python_that_is_built_in_is_known() {
        #[cfg(feature = "pack-python")]
        {
            let known = of_program("python3").unwrap();
            assert!(known.is_sorted() && known.contains(&"json") && !known.contains(&"ssl"));
        }
        for other in ["node", "perl", "sh", "./python3"] {
            assert_eq!(of_program(other), None, "{other}");
        }
    }
}
