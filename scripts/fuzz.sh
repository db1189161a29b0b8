#!/usr/bin/env bash
# fuzz.sh TIME runs every fuzz target of this module for TIME. What fails is kept in the package's testdata/fuzz, where
# every later `go test` runs it too.
#
# Before Go 1.27 a run ends as "context deadline exceeded" now and then where its time is over while an input is tried
# (https://go.dev/issue/75804): no input is named, nothing is kept, and it is no finding.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:?how long for each target, such as 10s}
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
while IFS=: read -r file line; do
  target=$(sed -E 's/^func (Fuzz[A-Za-z0-9_]+).*/\1/' <<<"$line")
  package=./$(dirname "$file")
  echo "$package $target"
  if go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" >"$log" 2>&1; then
    continue
  fi
  if grep -qx '    context deadline exceeded' "$log" && ! grep -q -e 'Failing input' -e '^panic:' "$log"; then
    echo "  the time ended while an input was being tried; nothing was found"
    continue
  fi
  cat "$log"
  failed=1
done < <(grep -rn --include='*_test.go' '^func Fuzz' . | sed -E 's#^\./([^:]+):[0-9]+:#\1:#' | grep -v '^\(integration\|bench\)/')
exit $failed
