"""The Dockerfile and compose.yaml. No engine is needed: each step of the Dockerfile is run by
itself."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests import ROOT
from tests.harness.machine import need
from tests.harness.namespaces import Machine, missing

TEXT = (ROOT / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
DIGEST = re.compile(r"[a-z]+:[\w.-]+@sha256:[0-9a-f]{64}")
INSTALL_TIMEOUT = 240.0


class Instruction(NamedTuple):
    """One instruction of the Dockerfile."""

    word: str
    rest: str


def instructions() -> list[Instruction]:
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", TEXT, flags=re.MULTILINE))
    return [Instruction(*line.split(maxsplit=1)) for line in text.splitlines() if line]


def values(word: str) -> list[str]:
    return [each.rest for each in instructions() if each.word == word]


def test_hadolint_has_no_complaint() -> None:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which(
        "hadolint"
    )
    if program is None:
        need("hadolint", "hadolint is not installed")
    done = subprocess.run(
        [program, ROOT / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_images_are_those_of_a_digest_and_both_stages_have_the_same_one() -> None:
    bases = [value.split()[0] for value in values("FROM")]
    assert len(bases) == 2
    assert len(set(bases)) == 1
    for image in (*bases, COMPOSE["services"]["postgres"]["image"]):
        assert DIGEST.fullmatch(image)


def test_all_that_is_installed_is_pinned_by_hashes() -> None:
    for line in values("RUN"):
        for install in re.findall(r"pip install ([^&]*)", line):
            assert "--require-hashes" in install or "--no-deps /opt/wheel/" in install


def test_the_image_runs_as_an_ordinary_user_and_opens_nothing() -> None:
    assert values("USER") == ["10001:10001"]
    assert values("VOLUME") == ["/data"]
    [env] = values("ENV")
    assert {"STOREKEEPER_AUTH=writes", "STOREKEEPER_EXAMPLES=false"} <= set(env.split())


def test_compose_gives_the_service_no_more_than_it_needs_and_postgresql_only_when_asked_for() -> (
    None
):
    service = COMPOSE["services"]["storekeeper"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["ports"] == ["127.0.0.1:8080:8080"]
    assert service["volumes"] == ["stores:/data"]
    assert "profiles" not in service
    assert COMPOSE["services"]["postgres"]["profiles"] == ["postgres"]


@pytest.fixture
def machine() -> Iterator[Machine]:
    if reason := missing():
        need("machine", reason)
    made = Machine()
    try:
        base = "/usr/local/sbin/python"
        made.root(
            f"printf '#!/bin/sh\\nexec {sys.base_prefix}/bin/python3 \"$@\"\\n' > {base}; chmod"
            f" 755 {base}"
        )
        yield made
    finally:
        made.close()


def moved(text: str) -> str:
    """Return a text with folders that this machine may have at its root."""
    return re.sub(r"(?<![\w/.])/(data|source)\b", r"/srv/\1", text)


def build(machine: Machine) -> dict[str, str]:
    """Carry out all steps that build the image; return its environment."""
    environment: dict[str, str] = {}
    for word, text in instructions():
        rest = moved(text)
        if word == "WORKDIR":
            machine.root(f"mkdir -p {rest}; cd {rest}")
        elif word == "COPY" and not rest.startswith("--from"):
            *sources, target = rest.split()
            if target.endswith("/"):
                machine.root(f"mkdir -p {target}")
            for source in sources:
                place = target + Path(source).name if target.endswith("/") else target
                machine.root(f"cp -rT /mnt/source/{source} {place}")
        elif word == "RUN":
            status, output = machine.run_outside(f"bash -c {shlex.quote(rest)}", INSTALL_TIMEOUT)
            assert status == 0, output
        elif word == "ENV":
            environment = dict(part.split("=", 1) for part in shlex.split(rest))
    return environment


@pytest.mark.thorough  # installs all dependencies, from a registry
def test_each_step_of_the_dockerfile_works_and_what_it_builds_serves_on_a_read_only_root(
    machine: Machine,
) -> None:
    environment = build(machine)
    environment["STOREKEEPER_DATABASE"] = environment["STOREKEEPER_DATABASE"].replace(
        "/data/", "/srv/data/"
    )
    exports = " ".join(f"{name}={value}" for name, value in environment.items())
    [user], [entry], [command] = values("USER"), values("ENTRYPOINT"), values("CMD")
    run = (
        f"setpriv --reuid={user.split(':')[0]} --regid={user.split(':')[1]} --clear-groups"
        " --no-new-privs"
    )
    run += " --bounding-set=-all"

    def within(words: list[str]) -> str:
        inner = (
            f"mount -o remount,bind,ro / && cd /srv/data && exec {run} env {exports}"
            f" {shlex.join(words)}"
        )
        return f"unshare --mount sh -c {shlex.quote(inner)}"

    machine.root("mount -t tmpfs tmpfs /mnt; true")  # the checkout is away
    machine.root(within([*json.loads(entry), "create"]))
    serve = json.loads(entry) + json.loads(command)
    machine.root(
        f"{within(serve)} > /run/log 2>&1 & until grep -q 'listens on' /run/log; do sleep 0.05;"
        " done"
    )
    [check] = values("HEALTHCHECK")
    machine.root(within(json.loads(check.partition("CMD ")[2])))
    write = (
        'curl -s 127.0.0.1:8080/api/stores -H content-type:application/json -d \'{"name":"First"}\''
    )
    assert json.loads(machine.root(write))["statusCode"] == 401
    token = machine.root(
        within([*json.loads(entry), "token", "add", "staff", "--scope", "write"]) + " 2>&-"
    ).split()[-1]
    assert json.loads(machine.root(f"{write} -H 'authorization: Bearer {token}'"))["id"] == 1
    machine.root("kill $!; wait $!")
    assert machine.run("#", within(json.loads(check.partition("CMD ")[2])))[0] == 1
