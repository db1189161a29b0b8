#!/usr/bin/env bash
# mutants.sh [PACKAGE] changes one operator after the other in the packages of tools/mutants, or in PACKAGE alone, runs
# the package's tests for each, and prints how many of these mutants they noticed, and which they did not. It fails where
# the share is below the package's floor. WORKERS run at a time, 1 otherwise: with more, tests get slower.
#
# A mutant that runs until the time is over counts neither as killed nor as lived, and one that does not compile not at all.
set -euo pipefail
cd "$(dirname "$0")/.."
only=${1:-}
only=${only%/}
gremlins=$(scripts/install.sh gremlins)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# What gremlins finds as go. It counts exit code 1 as killed, with which go test ends where nothing was compiled too, and
# asks for the coverage of everything below a package, of which nothing is used.
cat >"$dir/go" <<EOF
#!/usr/bin/env bash
out=\$("$(command -v go)" "\${@%/...}") && exit
code=\$?
echo "\$out"
! grep -q '\[build failed\]' <<<"\$out" || exit 2
exit \$code
EOF
chmod +x "$dir/go"

# Each run is one of its own (a cached one would be the measure of the timeout), the copy in another directory finds what was
# compiled, and the tests that take minutes are left out.
flags="-trimpath -count=1 -vet=off -ldflags=-w -short"

# others PACKAGE FILE... prints a regular expression of the files that are not meant; without files, of the directories.
others() {
  (cd "$1" && shift && [ $# = 0 ] || ls -- *.go | grep -vxF "$(printf '%s\n' "$@")" | sed 's/.*/^&$/' | tr '\n' '|')
  echo /
}

printf '%-22s %7s %6s %5s %9s %11s %8s %5s\n' package mutants killed lived 'timed out' 'not covered' efficacy floor >"$dir/table"
: >"$dir/lived"
grep -q "^${only:-[.].*} " tools/mutants || { echo "mutants: $only is no package of tools/mutants" >&2; exit 1; }
failed=0
while read -r package floor files; do
  [ -z "$only" ] || [ "$only" = "$package" ] || continue
  # shellcheck disable=SC2086 # files are several
  GOFLAGS=$flags PATH=$dir:$PATH "$gremlins" unleash "$package" --workers "${WORKERS:-1}" --timeout-coefficient 5 \
    --exclude-files "$(others "$package" $files)" | tee "$dir/log"
  awk -v package="$package" -v floor="$floor" -v survivors="$dir/lived" '
    / at [^ ]+\.go:[0-9:]+$/ { count[$1 == "NOT" ? $2 : $1]++ }
    $1 == "LIVED" { print package "/" $NF, $2 >>survivors }
    END {
      all = count["KILLED"] + count["LIVED"]
      if (!all) { print package ": no mutant was tried"; exit 1 }
      efficacy = 100 * count["KILLED"] / all
      verdict = "fine"
      if (efficacy < floor) verdict = "too low"
      if (efficacy >= floor + 3) verdict = "the floor can be raised"
      printf "%-22s %7d %6d %5d %9d %11d %8.1f %5d  %s\n", package, all, count["KILLED"], count["LIVED"], count["TIMED"],
        count["COVERED"], efficacy, floor, verdict
      if (efficacy < floor) exit 1
    }' "$dir/log" >>"$dir/table" || failed=1
done < <(grep -v '^#' tools/mutants)

echo
echo 'lived:'
cat "$dir/lived"
echo
cat "$dir/table"
exit $failed
