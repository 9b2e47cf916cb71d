#!/usr/bin/env bash
# Post each change of a store to the address in HOOK, in order, each again until it is taken. It runs beside the service,
# whose database STOREKEEPER_DATABASE names. What is done stands in sent.cursor, in the present folder: whenever this is
# stopped, no change is left out, and some may come twice.
#
# After a backup was restored it posts nothing, and says from which cursor to go on: have the receiver read the list
# again, then put that cursor into sent.cursor.
while sleep 5; do
  cp sent.cursor next.cursor 2>/dev/null || rm -f next.cursor
  storekeeper changes --cursor-file next.cursor >changes.jsonl && while read -r change; do
    until printf '%s' "$change" | curl -sf -H 'Content-Type: application/json' --data-binary @- "$HOOK"; do sleep 5; done
  done <changes.jsonl && mv next.cursor sent.cursor
done
