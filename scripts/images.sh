#!/usr/bin/env bash
# Builds images out of packages that replace the public images of docker-compose.yml, under their names, on the
# Docker engine that DOCKER_HOST names: real servers, where no image can be pulled. Not for an engine that others use.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
images=$here/../integration/compose/images

# build NAME DIR AS...: builds the image from images/DIR and, beside it, each PATH of the rest as its NAME.
build() {
  local name=$1 dir=$2 parts=() path
  shift 2
  while [ $# -gt 0 ]; do
    path=$1
    parts+=("--transform=s,^$(basename "$path"),$2," -C "$(dirname "$path")" "$(basename "$path")")
    shift 2
  done
  tar -c -C "$images/$dir" . "${parts[@]}" | docker build -q -t "$name" - >/dev/null
}

docker import -c 'ENV LANG=C.UTF-8' "$("$here/install.sh" jre)" eclipse-temurin:17-jre >/dev/null
build zookeeper:3.9 zookeeper "$("$here/install.sh" zookeeper)" jars
nacos=$("$here/install.sh" nacos3)
build nacos/nacos-server:v3.1.0 nacos "$nacos/jars" jars "$nacos/classes" classes
build istio/pilot:1.29.0 istiod "$("$here/install.sh" istiod)" istiod
