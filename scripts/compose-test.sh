#!/usr/bin/env bash
# Runs docker-compose.yml unchanged and checks what it promises: calls in both directions, while all is well, while
# a registry is down, while a network is cut, and afterwards. `make compose-test` builds its images and calls it.
#
# It uses the Docker engine that runs. Where none runs it installs and starts one of its own (root on Debian), makes
# images of packages that replace the public ones, and removes everything at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

project=xds-bridge-test
begun=$SECONDS passed=0 failed=0
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/xds-bridge-compose.XXXXXX")
export BRIDGE_PORT=0 MESH_PORT=0 ZOOKEEPER_PORT=0 NACOS_PORT=0 # free ones
export COMPOSE_PROJECT_NAME=$project COMPOSE_HTTP_TIMEOUT=180 PATH=$PATH:/usr/sbin

say() { printf '%4ds %s\n' $((SECONDS - begun)) "$*"; }

compose() {
  if docker compose version >/dev/null 2>&1; then
    docker compose "$@"
  else
    docker-compose "$@"
  fi
}

# silently COMMAND... shows what it prints only where it fails.
silently() {
  "$@" >"$scratch/output" 2>&1 || { tail -5 "$scratch/output" >&2; return 1; }
}

# containers [FILTER] prints the project's containers: id and service.
containers() {
  docker ps -a --filter "label=com.docker.compose.project=$project" ${1:+--filter "$1"} \
    --format '{{.ID}} {{.Label "com.docker.compose.service"}}'
}

# container SERVICE prints its container.
container() { containers "label=com.docker.compose.service=$1" | cut -d' ' -f1; }

# state CONTAINER prints healthy, unhealthy, starting, or how it is where it has no health check.
state() { docker inspect -f '{{if .State.Health}}{{.State.Health.Status}}{{else}}{{.State.Status}} {{.State.ExitCode}}{{end}}' "$1"; }

# ailing prints the services that are not as they should be.
ailing() {
  local id service
  containers >"$scratch/containers"
  for service in $services; do
    grep -q " $service$" "$scratch/containers" || echo "$service"
  done
  while read -r id service; do
    case $(state "$id") in
      healthy | "exited 0") ;;
      *) echo "$service" ;;
    esac
  done <"$scratch/containers"
}

all_healthy() { [ -z "$(ailing)" ]; }

# comes_up starts what is not started. Compose 1.29 gives up where a server is not healthy at its first start, such as
# Nacos on a busy machine; so it is repeated.
comes_up() { silently compose up -d && all_healthy; }

# ask SERVICE PATH prints what the service answers at its published port.
ask() { bin/greet get "http://$(docker port "$(container "$1")" 8080/tcp | head -1)/$2"; }

mesh_calls_zookeeper() { [ "$(ask mesh-consumer call/zookeeper/bob)" = "hello bob from 20002" ]; }
mesh_calls_nacos() { [ "$(ask mesh-consumer call/nacos/bob)" = "hello bob from 20003" ]; }
zookeeper_calls_mesh() { [ "$(ask zookeeper-consumer call/greet/bob)" = "hello bob from 20001" ]; }
nacos_calls_mesh() { [ "$(ask nacos-consumer call/greet/bob)" = "hello bob from 20001" ]; }
both_directions_through_zookeeper() { mesh_calls_zookeeper && zookeeper_calls_mesh; }
every_call() { both_directions_through_zookeeper && mesh_calls_nacos && nacos_calls_mesh; }
bridge_is_healthy() { [ "$(state "$(container bridge)")" = healthy ]; }
bridge_synced() { bin/greet get "http://$(docker port "$(container bridge)" 9902/tcp | head -1)/readyz" >/dev/null; }
well() { all_healthy && bridge_synced && every_call; }

# within SECONDS COMMAND...: it succeeds in that time.
within() {
  local end=$((SECONDS + $1))
  shift
  until "$@" 2>"$scratch/why"; do
    [ $SECONDS -lt $end ] || return 1
    sleep 1
  done
}

# throughout SECONDS COMMAND...: it succeeds all that time.
throughout() {
  local end=$((SECONDS + $1))
  shift
  while [ $SECONDS -lt $end ]; do
    "$@" 2>"$scratch/why" || return 1
    sleep 1
  done
}

fails() { ! "$@" >/dev/null 2>&1; }

# knows SERVICE ONE OTHER: it reaches the one address and not the other.
knows() {
  local dial=(docker exec "$(container "$1")" greet dial)
  "${dial[@]}" "$2" 2>"$scratch/why" && fails "${dial[@]}" "$3"
}

# check SENTENCE COMMAND... counts and prints one check.
check() {
  local sentence=$1 number=$((passed + failed + 1))
  shift
  if "$@"; then
    passed=$((passed + 1))
    say "ok   $number  $sentence"
  else
    failed=$((failed + 1))
    say "FAIL $number  $sentence"
    explain
  fi
}

# explain prints why a check failed: the last error, and the last words of whoever is not well and of the bridge.
explain() {
  local service
  sed 's/^/       /' "$scratch/why" 2>/dev/null | tail -3
  for service in $( { ailing; echo bridge; } | sort -u); do
    echo "       --- $service"
    compose logs --tail=25 "$service" 2>&1 | sed 's/^/       /'
  done
}

end() {
  trap '' INT TERM
  if [ -n "${up:-}" ]; then
    say "removing everything"
    compose down -v -t 5 >/dev/null 2>&1 || true
  fi
  if [ -n "${engine:-}" ]; then
    scripts/engine.sh stop "$engine"
  fi
  rm -rf "$scratch"
}
# finish ends everything, says how it went, and exits.
finish() {
  trap - EXIT
  end
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ]
  exit
}

trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

engine_answers() { command -v docker >/dev/null && docker version >/dev/null 2>&1; }

start_engine() {
  if engine_answers; then
    say "a Docker engine runs: its images are the public ones"
    return
  fi
  engine=$scratch/engine
  DOCKER_HOST=$(scripts/engine.sh start "$engine" 8>&-)
  export DOCKER_HOST
  say "a Docker engine of our own runs"
  scripts/images.sh 2>"$scratch/output" || { cat "$scratch/output" >&2; exit 1; }
  say "the replacement images are built"
}

# The network of docker-compose.yml can exist once.
exec 8>"${TMPDIR:-/var/tmp}/xds-bridge-compose.lock"
flock 8
start_engine
command -v docker-compose >/dev/null || docker compose version >/dev/null 2>&1 || { echo "compose-test: Docker Compose is missing: apt-get install docker-compose" >&2; exit 1; }

up=yes
services=$(compose config --services)
silently compose build
say "the images of this project are built"
check "every container of docker-compose.yml is healthy" within 300 comes_up
[ "$failed" = 0 ] || finish
check "ZooKeeper's consumer calls the mesh's provider" within 30 zookeeper_calls_mesh
check "Nacos's consumer calls the mesh's provider" within 30 nacos_calls_mesh
check "the mesh's consumer calls ZooKeeper's provider" within 30 mesh_calls_zookeeper
check "the mesh's consumer calls Nacos's provider" within 30 mesh_calls_nacos
check "ZooKeeper's consumer reaches ZooKeeper and not istiod" knows zookeeper-consumer zookeeper:2181 istiod:15010
check "Nacos's consumer reaches Nacos and not istiod" knows nacos-consumer nacos:8848 istiod:15010
check "the mesh's consumer reaches istiod and not ZooKeeper" knows mesh-consumer istiod:15010 zookeeper:2181

say "ZooKeeper is killed"
silently compose kill -s KILL zookeeper
check "both directions continue without ZooKeeper" throughout 15 both_directions_through_zookeeper
check "the bridge is healthy without ZooKeeper" bridge_is_healthy
say "ZooKeeper starts again"
silently compose start zookeeper
check "everything is well again" within 120 well

say "the bridge is cut off from both registries"
docker network disconnect "${project}_registries" "$(container bridge)"
check "both directions through ZooKeeper continue without the bridge" throughout 15 both_directions_through_zookeeper
check "the bridge is healthy without its registries" bridge_is_healthy
say "the network is healed"
docker network connect --alias bridge "${project}_registries" "$(container bridge)"
check "everything is well again" within 120 well

say "the bridge and istiod are killed"
silently compose kill -s KILL bridge istiod
check "both directions through ZooKeeper continue without both" throughout 10 both_directions_through_zookeeper
silently compose start bridge istiod
check "everything is well again" within 120 well

say "ZooKeeper's provider stops, and a restarted one replaces it"
silently compose stop -t 5 zookeeper-provider
check "the mesh's consumer learns that nobody is left" within 60 fails mesh_calls_zookeeper
silently compose start zookeeper-provider
check "everything is well again" within 120 well

finish
