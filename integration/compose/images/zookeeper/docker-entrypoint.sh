#!/bin/bash
# Of the official image's variables, those that docker-compose.yml sets.
set -e
{
  echo dataDir=/data
  echo dataLogDir=/datalog
  echo clientPort=2181
  echo "tickTime=${ZOO_TICK_TIME:-2000}"
  echo "admin.enableServer=${ZOO_ADMINSERVER_ENABLED:-true}"
  echo "maxClientCnxns=${ZOO_MAX_CLIENT_CNXNS:-60}"
  echo "4lw.commands.whitelist=${ZOO_4LW_COMMANDS_WHITELIST:-srvr}"
} >/conf/zoo.cfg
exec "$@"
