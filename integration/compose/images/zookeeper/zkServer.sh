#!/bin/bash
# The official image's command.
[ "$1" = start-foreground ] || { echo "zkServer.sh: only start-foreground exists here" >&2; exit 2; }
exec java $JVMFLAGS -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
  -cp '/zookeeper/*' org.apache.zookeeper.server.quorum.QuorumPeerMain /conf/zoo.cfg
