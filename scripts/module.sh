#!/usr/bin/env bash
# Runs a command in a module with the versions that its own go.mod asks for, which go.work would raise.
#
#   scripts/module.sh MODULE COMMAND...           MODULE is its directory, such as plugins/kratos
#   scripts/module.sh --write MODULE COMMAND...   and keeps what the command changes of go.mod and go.sum
#
# A plugin requires a released version of this repository's modules. In a copy of its go.mod they are those of this tree.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
write=
[ "$1" != --write ] || { write=1; shift; }
module=$1
shift
export GOWORK=off
cd "$root/$module"
case $module in
  plugins/*) ;;
  *) exec "$@" ;;
esac
ours=$(go list -m -modfile="$root/go.mod")
copy=$root/bin/modules/${module//\//-}
mkdir -p "$root/bin/modules"
unfinished=$(mktemp "$copy.XXXXXX")
cp go.mod "$unfinished"
go mod edit -replace "$ours=$root" -replace "$ours/plugins/grpc=$root/plugins/grpc" "$unfinished"
mv "$unfinished" "$copy.mod"
cp go.sum "$unfinished"
mv "$unfinished" "$copy.sum"
GOFLAGS="$(go env GOFLAGS) -modfile=$copy.mod" "$@"
if [ -n "$write" ]; then
  go mod edit -dropreplace "$ours" -dropreplace "$ours/plugins/grpc" "$copy.mod"
  cp "$copy.mod" go.mod
  cp "$copy.sum" go.sum
fi
