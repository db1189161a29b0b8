#!/usr/bin/env bash
# fuzz.sh TIME runs every fuzz target of this module for TIME. What fails is kept in the package's testdata/fuzz, where
# every later `go test` runs it too.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:?how long for each target, such as 10s}
failed=0
while IFS=: read -r file line; do
  target=$(sed -E 's/^func (Fuzz[A-Za-z0-9_]+).*/\1/' <<<"$line")
  package=./$(dirname "$file")
  echo "$package $target"
  go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" >/tmp/fuzz.$$ 2>&1 || { cat /tmp/fuzz.$$; failed=1; }
  rm -f /tmp/fuzz.$$
done < <(grep -rn --include='*_test.go' '^func Fuzz' . | sed -E 's#^\./([^:]+):[0-9]+:#\1:#' | grep -v '^\(integration\|bench\)/')
exit $failed
