#!/usr/bin/env bash
# The task of Everwatch's kind `exec`: writes a record every 250 ms, without starting a process for it.
# Usage: task.sh TASK. The records have the form that peers/records.py describes.
set -euo pipefail
task=$1 run=$EVERWATCH_EPOCH-$$
record() { local at=${EPOCHREALTIME//[.,]/}; echo "${at%???} $1 $task $PEERS_WORKER $run" >>"$PEERS_RECORDS"; }
exec 3<> <(:) # never readable: `read` only waits
record start
while true; do
  read -rt 0.25 -u 3 || true
  record beat
done
