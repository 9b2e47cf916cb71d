"""Imports that merge, conflicts, sources and undo: checked only if the service announces versions,
and has `/api/imports`.

All of it is done to the one store that checks change, and the key that it gets is taken away.
"""

import json
import time
from functools import partial
from typing import Any
from urllib.parse import urlencode

from storeapi_check.beyond import require_refusal, tag
from storeapi_check.service import Made, Response, Rules, Service, Skipped, fields

RULES = Rules()
check = partial(RULES.check, announced=True)
IMPORTS, UNDO = "/api/imports", "/api/imports/undo"
COLUMN = "Check"
TRIES_TO_IMPORT = 25
PAUSE = 0.2
BOUNDARY = "check"
MERGED = (
    "If the service has imports, a row of an older version changes only what the sheet changed."
    " Imported again, it changes nothing; nor does a dry run."
)
CONFLICTS = (
    "A row that differs from what its version and the store have is refused or skipped, with all"
    " three; nothing changes."
)
DECIDED = "A decision on a conflict is carried out if the store has the version that it names."
SOURCE = (
    "A row with a key and no version changes only what its source changed since it last gave it;"
    " a skipped row is a conflict again."
)
UNDONE = (
    "An undo takes back what is still as the import made it, and the keys that it gave; an undo of"
    " it does the import again."
)


def send_import(service: Service, rows: str | bytes, **query: str) -> Response:
    """Import a sheet as CSV, or as what comes with decisions; wait while others import. Raise
    Skipped if the service has no imports."""
    body = rows if isinstance(rows, bytes) else rows.encode()
    kind = "text/csv" if isinstance(rows, str) else f"multipart/mixed; boundary={BOUNDARY}"
    target = f"{IMPORTS}?{urlencode(query).replace('_', '-')}"
    return _answered(service, target, body=body, content_type=kind)


def send_undo(service: Service, done: Response, **query: str) -> Response:
    """Undo an import, or an undo; raise Skipped if the service cannot."""
    ends = {"from": done.member("from"), "to": done.member("to")}
    return _answered(service, f"{UNDO}?{urlencode(ends | query).replace('_', '-')}")


def _answered(service: Service, target: str, **sent: Any) -> Response:
    for _ in range(TRIES_TO_IMPORT):
        response = service.send("POST", target, **sent)
        if response.status in (404, 405, 501):
            raise Skipped(f"the service has no {target.partition('?')[0]}")
        if response.status != 503:
            return response
        time.sleep(PAUSE)
    raise Skipped("other clients import all the time")


def sheet(columns: str, *cells: object) -> str:
    """Return a sheet of one row."""
    return f"{columns}\n{','.join(map(str, cells))}\n"


def with_decisions(rows: str, *decisions: dict[str, object]) -> bytes:
    """Return the body of an import with decisions."""
    parts = (("application/json", json.dumps(decisions)), ("text/csv", rows))
    texts = [f"--{BOUNDARY}\r\nContent-Type: {kind}\r\n\r\n{text}\r\n" for kind, text in parts]
    return f"{''.join(texts)}--{BOUNDARY}--\r\n".encode()


def require_counts(response: Response, **wanted: int) -> None:
    """Raise Violation unless the report of an import or undo has these counts."""
    response.expect(response.status == 200, f"status {response.status}, not 200")
    found = {name: response.member(name) for name in wanted}
    response.expect(found == wanted, f"its counts are {found}, not {wanted}")


def require_conflict(response: Response, **texts: str) -> None:
    """Raise Violation unless the first problem of a response has the three addresses."""
    problems = response.member("problems")
    first = problems[0] if isinstance(problems, list) and problems else None
    conflict = first.get("conflict") if isinstance(first, dict) else None
    response.expect(isinstance(conflict, dict), "it does not say what is in conflict")
    assert isinstance(conflict, dict)
    named = conflict.get("fields")
    response.expect(named == ["address"], f"the fields in conflict are {named}, not the address")
    sides = {side: conflict.get(side) for side in texts}
    found = {side: has.get("address") for side, has in sides.items() if isinstance(has, dict)}
    response.expect(found == texts, f"the addresses in conflict are {found}, not {texts}")


def require_same(service: Service, store: Made, why: str) -> None:
    """Raise Violation unless a store is as its last write left it, with its tag."""
    shown = service.read(store.id)
    shown.shows(store, why)
    shown.expect(tag(shown) == tag(store.response), f"its ETag changed{why}")


def changed_here(service: Service, store: Made) -> Made:
    """Return a store after another client has changed its address."""
    response = service.replace(store.id, fields(store.name, "Here"))
    return Made(store.id, store.name, "Here", response)


def exported(store: Made, name: str, address: str) -> str:
    """Return the row of an export of a store, as edited since."""
    version = tag(store.response).strip('"')
    return sheet("id,name,address,version", store.id, name, address, version)


@check("They are merged field by field.", MERGED)
def _an_import_merges_each_field(service: Service) -> None:
    store, name = service.spare(), service.name()
    rows = exported(store, name, "Before")
    here = changed_here(service, store)
    dry = send_import(service, rows, match="id", dry_run="true")
    require_counts(dry, replaced=1, created=0, conflicts=0, bad=0)
    require_same(service, here, " after a dry run")
    done = send_import(service, rows, match="id")
    require_counts(done, replaced=1, created=0, conflicts=0, bad=0)
    shown = service.read(store.id)
    merged = Made(store.id, name, "Here", shown)
    shown.shows(merged, " after the import")
    again = send_import(service, rows, match="id")
    require_counts(again, replaced=0, unchanged=1, created=0, conflicts=0)
    require_same(service, merged, " after the same import again")


@check("if all three differ, it is a conflict", CONFLICTS)
def _a_conflict_changes_nothing(service: Service) -> None:
    store = service.spare()
    rows = exported(store, service.name(), "There")
    here = changed_here(service, store)
    refused = send_import(service, rows, match="id")
    require_refusal(refused, 422)
    require_conflict(refused, base="Before", present="Here", row="There")
    require_same(service, here, " though the import was refused")
    skipped = send_import(service, rows, match="id", on_conflict="skip")
    require_counts(skipped, conflicts=1, replaced=0, created=0)
    require_same(service, here, " though its row was skipped")


@check("A decision holds as long as the store has the version `seen`", DECIDED)
def _a_decision_holds_for_the_version_it_names(service: Service) -> None:
    store = service.spare()
    rows = exported(store, store.name, "There")
    here = changed_here(service, store)
    for seen, status in ((store, 422), (here, 200)):
        version = tag(seen.response).strip('"')
        decided = {"line": 2, "seen": version, "address": "Decided"}
        done = send_import(service, with_decisions(rows, decided), match="id")
        if status != 200:
            require_refusal(done, status)
            require_same(service, here, " though the decision was about another version")
    require_counts(done, replaced=1, conflicts=0)
    service.read(store.id).shows(Made(store.id, store.name, "Decided", done), " as decided")


@check("it is what the *source* last gave for that key", SOURCE, adds=1)
def _a_source_is_merged_with_what_it_gave(service: Service) -> None:
    store, name, key = service.spare(), service.name(), service.name()
    match, columns = f"key:{COLUMN}", f"{COLUMN},name,address"
    first = sheet(columns, key, store.name, store.address)
    adopted = send_import(service, first, match=match, adopt="true")
    if adopted.member("created") == 1:
        service.added += 1
    require_counts(adopted, adopted=1, created=0)
    changed_here(service, store)
    renamed = sheet(columns, key, name, "Before")
    for replaced, unchanged in ((1, 0), (0, 1)):
        done = send_import(service, renamed, match=match)
        require_counts(done, replaced=replaced, unchanged=unchanged, created=0, conflicts=0)
        shown = service.read(store.id)
        merged = Made(store.id, name, "Here", shown)
        shown.shows(merged, " after its source changed its name")
    for _ in range(2):
        done = send_import(
            service, sheet(columns, key, name, "There"), match=match, on_conflict="skip"
        )
        require_counts(done, conflicts=1, replaced=0)
        require_conflict(done, base="Before", present="Here", row="There")
        require_same(service, merged, " though its row was skipped")
    send_undo(service, adopted)
    gone = send_import(service, first, match=match, dry_run="true")
    require_counts(gone, created=1, conflicts=0)


@check("what still is as the import made it becomes what it was", UNDONE)
def _an_undo_takes_back_what_is_left_of_an_import(service: Service) -> None:
    store, name = service.spare(), service.name()
    done = send_import(service, exported(store, name, "After"), match="id")
    require_counts(done, replaced=1)
    here = changed_here(service, Made(store.id, name, "After", done))
    version = tag(here.response).strip('"')
    other = f"{UNDO}?{urlencode({'from': version, 'to': version})}"
    require_refusal(_answered(service, other), 400)
    require_same(service, here, " though no import was undone")
    dry = send_undo(service, done, dry_run="true")
    require_counts(dry, undone=1, kept=1, created=0)
    require_same(service, here, " after the dry run of an undo")
    undone = send_undo(service, done)
    require_counts(undone, undone=1, kept=1, created=0)
    service.read(store.id).shows(Made(store.id, store.name, "Here", undone), " after the undo")
    redone = send_undo(service, undone)
    require_counts(redone, undone=1, kept=0, created=0)
    service.read(store.id).shows(Made(store.id, name, "Here", redone), " after its undo")
