#!/bin/sh
# Runs the black-box check of `pagoda serve` against its golden outputs.
# usage: run_acceptance.sh SHARED_DIR PAGODA [--serve-flag=...]
# Exits 77, which ctest takes for "skipped", where the check or its model is not on this machine.
shared=$1
pagoda=$2
shift 2
check=$shared/acceptance/jsonl_check.py
model=$shared/models/stories260k
golden=$shared/goldens/stories260k_greedy.json
for needed in "$check" "$model/config.json" "$golden"; do
  if [ ! -e "$needed" ]; then
    echo "skipped: $needed is not on this machine"
    exit 77
  fi
done
if ! command -v python3 >/dev/null; then
  echo "skipped: python3 is not on this machine"
  exit 77
fi
exec python3 "$check" "$pagoda" "$model" "$golden" "$@"
