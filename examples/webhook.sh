#!/usr/bin/env bash
# Post each change of a store to the address in HOOK, in order, and repeat each one until it is accepted. Run this on the
# service's machine, with its database in STOREKEEPER_DATABASE. The file sent.cursor in the current folder says how far
# it has got: whenever you stop this, no change is left out, and some may be posted twice.
#
# After a backup was restored it posts nothing, and prints the cursor to continue from: have the receiver read the list
# again, then put that cursor into sent.cursor.
while sleep 5; do
  cp sent.cursor next.cursor 2>/dev/null || rm -f next.cursor
  storekeeper changes --cursor-file next.cursor >changes.jsonl && while read -r change; do
    until printf '%s' "$change" | curl -sf -H 'Content-Type: application/json' --data-binary @- "$HOOK"; do sleep 5; done
  done <changes.jsonl && mv next.cursor sent.cursor
done
