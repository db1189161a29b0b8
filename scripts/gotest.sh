#!/usr/bin/env bash
# Runs go test of the module in this directory under gotestsum, which prints each package as it ends and all failures at the end.
#
#   scripts/gotest.sh NAME [FLAG...]            FLAGs are go test's; of all packages of the module
#   RERUN=1 scripts/gotest.sh NAME [FLAG...]    up to three failed tests are run once more, and are FLAKY if they pass
#
# Writes bin/runs/NAME.json with every event, NAME.xml in the form of JUnit and, with RERUN, NAME.flaky. Names the tests of
# packages that run for longer than 20 s, every 20 s, and the slowest tests at the end.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=$1
shift
gotestsum=$("$root/scripts/install.sh" gotestsum)
events=$root/bin/runs/$name.json
flaky=$root/bin/runs/$name.flaky
mkdir -p "$root/bin/runs"
rm -f "$events" "$flaky"

# read_event is the part of an awk program that sets action, package and test, and leaves out the lines that tests print.
# shellcheck disable=SC2016 # the fields are awk's
read_event='
  function field(name) {
    return match($0, "\"" name "\":\"[^\"]*\"") ? substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 5) : ""
  }
  /"Action":"output"/ { next }
  { action = field("Action"); package = field("Package"); test = field("Test") }
'

# running prints the tests that run, without those that wait for their own subtests, by package.
running() {
  awk "$read_event"'
    action ~ /^(run|cont)$/ { runs[package, test] = 1 }
    action == "start" { started[package] = 1 }
    action ~ /^(pause|pass|fail|skip)$/ { delete runs[package, test] }
    action ~ /^(pass|fail|skip)$/ && test == "" { delete started[package] }
    END {
      for (at in runs) { split(at, part, SUBSEP); if (sub("/[^/]*$", "", part[2])) waits[part[1], part[2]] = 1 }
      for (at in runs) { split(at, part, SUBSEP); if (!((part[1], part[2]) in waits)) tests[part[1]] = tests[part[1]] " " part[2] }
      for (package in started) print package tests[package]
    }' "$events"
}

# unfinished prints the tests that had no result when their package ended.
unfinished() {
  awk "$read_event"'
    action == "run" { runs[package, test] = 1 }
    action ~ /^(pass|fail|skip)$/ && test != "" { delete runs[package, test] }
    action ~ /^(pass|fail|skip)$/ && test == "" {
      for (at in runs) { split(at, part, SUBSEP); if (part[1] == package) { print package, part[2]; delete runs[at] } }
    }' "$events"
}

# The packages of one look that are there at the next one have run for 20 s.
watch() {
  local before='' now
  while sleep 20 >/dev/null 2>&1; do # it outlives the run, and must hold no pipe open
    [ -f "$events" ] || continue
    now=$(running | sort)
    join <(cut -d' ' -f1 <<<"$before") - <<<"$now" | sed -n 's/^./... &/p'
    before=$now
  done
}

rerun=()
if [ -n "${RERUN:-}" ]; then
  : >"$flaky"
  rerun=(--rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-run-root-test --rerun-fails-report "$flaky")
fi
watch &
watcher=$!
trap 'kill $watcher 2>/dev/null || true; wait $watcher 2>/dev/null || true' EXIT
result=0
"$gotestsum" --format standard-quiet --hide-summary skipped --jsonfile "$events" --junitfile "$root/bin/runs/$name.xml" \
  "${rerun[@]}" --packages ./... -- "$@" || result=$?
echo "the slowest of $name:"
"$gotestsum" tool slowest --num 5 --threshold 1s --jsonfile "$events"
if [ -n "${RERUN:-}" ]; then # tests, not their subtests, that passed in the end
  sed -nE 's,^.*/([^/. ]+\.[^/ ]+: )([0-9]+) runs\, ([0-9]+) fail.*,\2 \3 FLAKY \1\2 runs\, \3 failures,p' "$flaky" |
    awk '$2 < $1 { sub(/^[0-9]+ [0-9]+ /, ""); print; n++ } END { print "flaky: " n + 0 }'
fi
# A test binary that died ran only a part of its tests, and a rerun runs no more than that part.
died=$(unfinished)
[ -z "$died" ] || { echo "ended without a result: $died"; [ "$result" != 0 ] || result=1; }
exit "$result"
