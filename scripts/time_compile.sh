#!/usr/bin/env bash
# A compiler launcher: runs the command, and adds "<user s> <system s> <object>" to the file
# $WARPFUSE_COMPILE_LOG.
for argument in "$@"; do
  if [ "${previous:-}" = -o ]; then object=$argument; fi
  previous=$argument
done
TIMEFORMAT="%U %S ${object:-?}"
{ time "$@" 2>&3; } 3>&2 2>>"$WARPFUSE_COMPILE_LOG"
