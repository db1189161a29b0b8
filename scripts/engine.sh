#!/usr/bin/env bash
# A Docker engine of its own on a Debian machine where none runs: as root, without systemd.
#
#   scripts/engine.sh start DIR     installs what is missing, starts the engine, prints its address (unix://…)
#   scripts/engine.sh stop DIR      ends it with everything in it, and reverts what it changed on the machine
#
# DIR, a new directory, holds its socket, its images and containers, and its log.
set -euo pipefail
dir=${2:?say start or stop, and a directory}
socket=$dir/docker.sock
packages=(docker.io docker-compose iptables debootstrap) # the last makes images where none can be pulled

fail() { echo "engine: $*" >&2; exit 1; }

# missing prints which of the programs that the packages bring are not there.
missing() {
  local program
  for program in dockerd containerd docker-compose iptables debootstrap; do
    PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || echo "$program"
  done
}

install() {
  [ -n "$(missing)" ] || return 0
  command -v apt-get >/dev/null || fail "no Docker engine runs, and it can be installed on Debian alone"
  echo "engine: installing ${packages[*]}" >&2
  {
    apt-get update -q
    # What the packages would start themselves is switched off: this script starts its own.
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${packages[@]}"
  } >"$dir/apt.log" 2>&1 || { tail -5 "$dir/apt.log" >&2; fail "apt-get install ${packages[*]} failed"; }
}

# rules TOOL prints the TOOL's rules and policies, as the TOOL's own arguments, without the counters.
rules() { "$1-save" 2>/dev/null | sed -e '/^#/d' -e 's/ \[[0-9:]*\]$//' || true; }

remember() {
  cat /proc/sys/net/ipv4/ip_forward >"$dir/ip_forward"
  rules iptables >"$dir/iptables"
  rules ip6tables >"$dir/ip6tables"
  ip link show docker0 >/dev/null 2>&1 && touch "$dir/docker0" || true
}

# revert undoes what the engine did to the machine, and nothing while another engine runs.
revert() {
  [ -f "$dir/iptables" ] || return 0
  if pgrep -x dockerd >/dev/null; then
    return 0
  fi
  [ -e "$dir/docker0" ] || ip link delete docker0 2>/dev/null || true
  local tool
  for tool in iptables ip6tables; do
    "$tool-save" >/dev/null 2>&1 || continue
    if [ "$(rules $tool)" != "$(cat "$dir/$tool")" ]; then
      forget "$tool"
    fi
  done
  cat "$dir/ip_forward" >/proc/sys/net/ipv4/ip_forward
}

# forget TOOL removes the rules that name the engine's chains or bridge, those chains, and the FORWARD policy.
forget() {
  local table rule chain
  for table in filter nat; do
    while read -r rule; do
      eval "$1 -t $table ${rule/#-A/-D}" 2>/dev/null || true
    done < <("$1" -t "$table" -S 2>/dev/null | grep -E '^-A (FORWARD|PREROUTING|OUTPUT|POSTROUTING|INPUT) .*(DOCKER|docker0)')
    for chain in $("$1" -t "$table" -S 2>/dev/null | awk '/^-N DOCKER/ { print $2 }'); do "$1" -t "$table" -F "$chain"; done
    for chain in $("$1" -t "$table" -S 2>/dev/null | awk '/^-N DOCKER/ { print $2 }'); do "$1" -t "$table" -X "$chain"; done
  done
  if grep -q '^:FORWARD ACCEPT' "$dir/$1" || ! grep -q '^:FORWARD' "$dir/$1"; then
    "$1" -P FORWARD ACCEPT
  fi
}

# driver prints overlay2 where the directory's file system can carry it.
driver() {
  local probe=$dir/probe
  mkdir -p "$probe"/{lower,upper,work,merged}
  if mount -t overlay -o "lowerdir=$probe/lower,upperdir=$probe/upper,workdir=$probe/work" overlay "$probe/merged" 2>/dev/null; then
    umount "$probe/merged"
    echo overlay2
  else
    echo vfs
  fi
  rm -rf "$probe"
}

start() {
  [ "$(id -u)" = 0 ] || fail "no Docker engine runs, and only root can start one; start Docker, or be root"
  [ -d /sys/fs/cgroup ] && grep -q ' /sys/fs/cgroup' /proc/mounts || fail "no cgroups are mounted at /sys/fs/cgroup, which a Docker engine requires"
  mkdir -p "$dir"
  install
  remember
  # Containers need one another and the host, and nothing outside: no masquerading.
  setsid dockerd --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/docker.pid" --host "unix://$socket" \
    --storage-driver "$(driver)" --ip-masq=false --log-level warn >"$dir/dockerd.log" 2>&1 </dev/null &
  local pid=$! try
  echo "$pid" >"$dir/started.pid"
  for try in $(seq 240); do
    if DOCKER_HOST=unix://$socket docker version >/dev/null 2>&1; then
      echo "unix://$socket"
      return
    fi
    kill -0 "$pid" 2>/dev/null || { tail -5 "$dir/dockerd.log" >&2; fail "the engine ended at its start"; }
    sleep 0.25
  done
  tail -5 "$dir/dockerd.log" >&2
  fail "the engine does not answer within a minute"
}

stop() {
  local pid ids try
  [ -f "$dir/started.pid" ] || { rm -rf "$dir"; return; }
  pid=$(cat "$dir/started.pid")
  export DOCKER_HOST=unix://$socket
  ids=$(docker ps -aq 2>/dev/null || true)
  [ -z "$ids" ] || docker rm -f -v $ids >/dev/null 2>&1 || true
  ids=$(docker network ls -q --filter type=custom 2>/dev/null || true)
  [ -z "$ids" ] || docker network rm $ids >/dev/null 2>&1 || true
  kill "$pid" 2>/dev/null || true
  for try in $(seq 80); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.25
  done
  kill -9 "$pid" 2>/dev/null || true
  revert
  awk -v dir="$dir/" 'index($2, dir) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r -n1 umount 2>/dev/null || true
  rm -rf "$dir"
}

case $1 in
  start) start ;;
  stop) stop ;;
  *) fail "say start or stop" ;;
esac
