#!/usr/bin/env bash
# Starts a real ZooKeeper, a real istiod and a bridge from the one into the other, on free ports of 127.0.0.1, without
# Docker, and prints what to try with them. Ctrl-C ends all of them.
#
#   scripts/try.sh [DIR]    DIR, or bin/try, is made anew: configuration, mesh, data and logs
#
# It requires Go, Java and Maven. scripts/install.sh builds the servers once, which takes minutes.
set -euo pipefail
shopt -s inherit_errexit
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dir=${1:-bin/try}

case ${1:-} in -h | --help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit ;; -*) printf 'try: no option %s; see --help\n' "$1" >&2; exit 2 ;; esac

say() { printf '%s\n' "$*"; }
fail() { say "try: $*" >&2; exit 1; }

# A second run in one directory would delete the files of the first.
mkdir -p "$dir"
exec 8<"$dir"
flock -n 8 || fail "another run uses $dir: name another directory"
[ -z "$(ls -A "$dir")" ] || [ -e "$dir/.try" ] || fail "$dir holds something else: name another directory"
rm -rf "${dir:?}"/*
touch "$dir/.try"
dir=$(cd "$dir" && pwd)

names=() pids=()

# finish ends what was started, the last first, each by its process id.
finish() {
  trap - EXIT INT TERM
  for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
    kill "${pids[i]}" 2>/dev/null || true
    wait "${pids[i]}" 2>/dev/null || true
  done
}
trap finish EXIT
trap 'say; exit 130' INT
trap 'exit 143' TERM

# start NAME COMMAND... runs a server in the directory.
start() {
  (cd "$dir" && exec "${@:2}" 8<&- >"$dir/$1.log" 2>&1) &
  names+=("$1") pids+=($!)
}

# ended prints the first server that has ended.
ended() {
  for i in "${!pids[@]}"; do
    kill -0 "${pids[i]}" 2>/dev/null || { say "${names[i]}"; return; }
  done
}

# check fails where a server has ended.
check() {
  local name
  name=$(ended)
  [ -z "$name" ] || { tail -5 "$dir/$name.log" >&2; fail "$name has ended; its log is $dir/$name.log"; }
}

# await WHAT COMMAND... repeats a command until it succeeds, for two minutes.
await() {
  local until=$((SECONDS + 120))
  until "${@:2}" >/dev/null 2>&1; do
    check
    [ "$SECONDS" -lt "$until" ] || fail "$1: not within two minutes; the logs are in $dir"
    sleep 0.2
  done
}

# ask PORT REQUEST ANSWER succeeds where a server answers a request so.
ask() {
  local answer
  exec 7<>"/dev/tcp/127.0.0.1/$1" || return
  printf "$2" >&7 && answer=$(timeout 5 cat <&7 | tr -d '\0')
  exec 7>&-
  [[ $answer == *"$3"* ]]
}

# port sets the variable that it names to a free port, below those that the kernel gives away.
given=' '
port() {
  local try
  for try in $(shuf -i 31000-32700 -n 100); do
    [[ $given == *" $try "* ]] || (exec 7<>"/dev/tcp/127.0.0.1/$try") 2>/dev/null || { given+="$try " && printf -v "$1" %s "$try" && return; }
  done
  fail 'no port is free between 31000 and 32700'
}

say 'Building; the first time takes minutes.'
bridge=${XDS_BRIDGE_BINARY:-$root/bin/xds-bridge}
[ -n "${XDS_BRIDGE_BINARY:-}" ] || make -s -C "$root" build
jars=$("$root/scripts/install.sh" zookeeper)
istiod=$("$root/scripts/install.sh" istiod)
port zk && port xds && port debug && port admin && port telemetry

mkdir "$dir/mesh" "$dir/zookeeper"
cat >"$dir/zoo.cfg" <<END
dataDir=$dir/zookeeper
clientPortAddress=127.0.0.1
clientPort=$zk
tickTime=500
maxSessionTimeout=60000
admin.enableServer=false
4lw.commands.whitelist=srvr
END
cat >"$dir/zkcli" <<END
#!/bin/sh
# What is in the ZooKeeper: zkcli ls -R /dubbo
exec java -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=error -cp '$jars/*' \\
  org.apache.zookeeper.ZooKeeperMain -server 127.0.0.1:$zk "\$@"
END
chmod +x "$dir/zkcli"
cat >"$dir/mesh/greeter.yaml" <<'END'
# What istiod knows. It watches this directory: change the endpoints, or add a file.
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: { name: greeter, namespace: shop }
spec:
  hosts: [greeter.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{ number: 20000, name: rpc, protocol: GRPC }]
  endpoints:
    - { address: 10.244.1.11, ports: { rpc: 20000 } }
    - { address: 10.244.2.12, ports: { rpc: 20000 } }
END
cat >"$dir/xds-bridge.yaml" <<END
# Change it: the running bridge reads it again within ten seconds. All that there is: docs/reference/config.md
owner: try
registries:
  mesh:
    istiod:
      address: 127.0.0.1:$xds
      mapping: { from: debug-http, addresses: ["127.0.0.1:$debug"], connectionGrace: 1s } # 5m by default: none is lost here
  zk: { zookeeper: { servers: ["127.0.0.1:$zk"] } }
bridges:
  - name: mesh-to-zk
    from: mesh
    to: zk
    formats: [dubbo-interface]
    names: # for hosts whose providers publish no service key
      - { host: greeter.shop.svc.cluster.local, interface: api.Greeter }
admin: { address: "127.0.0.1:$admin" }
telemetry: { address: "127.0.0.1:$telemetry" }
END

start zookeeper java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dzookeeper.jmx.log4j.disable=true \
  -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$jars/*" org.apache.zookeeper.server.quorum.QuorumPeerMain "$dir/zoo.cfg"
start istiod env PILOT_DEBOUNCE_AFTER=10ms PILOT_ENABLE_METADATA_EXCHANGE=false \
  "$istiod" -configDir "$dir/mesh" -grpcAddr "127.0.0.1:$xds" -httpAddr "127.0.0.1:$debug"
await 'ZooKeeper serves' ask "$zk" 'srvr' 'Mode:'
await 'istiod is ready' ask "$debug" 'GET /ready HTTP/1.0\r\n\r\n' ' 200 '
start xds-bridge "$bridge" run --config "$dir/xds-bridge.yaml"
await 'the bridge is in sync' "$bridge" status --config "$dir/xds-bridge.yaml"

cat <<END
istiod, ZooKeeper and the bridge run. In another shell:

  export XDS_BRIDGE_CONFIG=$dir/xds-bridge.yaml
  $bridge status
  $bridge why api.Greeter
  $dir/zkcli ls -R /dubbo

The bridge's configuration is $dir/xds-bridge.yaml and the mesh $dir/mesh: change them, and look again.
docs/quickstart.md continues from here. Ctrl-C ends all three.
END
wait -n "${pids[@]}" || true
check
