#!/usr/bin/env bash
# coverage.sh PROFILE FLOOR: prints the statement coverage of a profile and fails where it is below the floor.
set -euo pipefail
total=$(go tool cover -func="$1" | awk '/^total:/ { sub("%", "", $3); print $3 }')
echo "statement coverage: $total % (at least $2 %)"
awk -v total="$total" -v floor="$2" 'BEGIN { exit !(total >= floor) }' || {
  echo "coverage: $total % is below $2 %; see go tool cover -html=$1" >&2
  exit 1
}
