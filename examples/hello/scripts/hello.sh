#!/bin/sh
# Counts the packages of each section in the first CSV among the inputs. No field of that file holds a comma.
set -eu

for csv in "${WORKSPACE_IN:-/workspace/in}"/*.csv; do break; done
if [ ! -f "$csv" ]; then
    echo "hello: no CSV among the inputs; give one with --in" >&2
    exit 2
fi
out="${WORKSPACE_OUT:-/workspace/out}/sections.txt"
awk -F, 'NR > 1 { count[$3]++ } END { for (section in count) print section, count[section] }' "$csv" | LC_ALL=C sort >"$out"
echo "hello from sh: $(basename "$csv")"
cat "$out"
