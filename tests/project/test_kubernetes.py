"""The manifest for Kubernetes: valid, and no wider or more dangerous than the unit of systemd."""

from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # it has no types
import pytest
import yaml

from storekeeper.api.routing import ROUTES
from storekeeper.process.server import GRACEFUL_TIMEOUT
from storekeeper.settings import VARIABLES
from tests import ROOT

MANIFEST = ROOT / "deploy/kubernetes.yaml"
OBJECTS: list[Any] = list(yaml.safe_load_all(MANIFEST.read_text()))
JOBS = [each for each in OBJECTS if each["kind"] == "Job"]
DEPLOYMENTS = [each for each in OBJECTS if each["kind"] == "Deployment"]


def pod(each: Any) -> Any:
    return each["spec"]["template"]["spec"]


def container(each: Any) -> Any:
    (only,) = pod(each)["containers"]
    return only


def named(each: Any) -> str:
    return f"{each['kind']} {each['metadata']['name']}"


@pytest.mark.parametrize("each", OBJECTS, ids=named)
def test_each_object_is_valid_in_old_and_new_versions_and_has_no_unknown_field(each: Any) -> None:
    for version in ("1.29", "1.36"):
        kubernetes_validate.validate(each, version, strict=True)


def test_a_field_that_is_misspelt_would_be_found() -> None:
    wrong = yaml.safe_load(yaml.safe_dump(DEPLOYMENTS[0]))
    wrong["spec"]["strategie"] = wrong["spec"].pop("strategy")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.36", strict=True)


def test_only_a_job_makes_the_list_and_it_runs_once() -> None:
    assert [container(job)["args"] for job in JOBS] == [["create"], ["create"]]
    for job in JOBS:
        assert pod(job)["restartPolicy"] == "Never"
        assert job["spec"]["backoffLimit"] == 0
        # Deleted by a timer, it would be made again, on whatever volume there is then.
        assert "ttlSecondsAfterFinished" not in job["spec"]
    for deployment in DEPLOYMENTS:
        assert "initContainers" not in pod(deployment)
        assert container(deployment)["args"] == ["serve"]


def test_one_instance_has_the_file_and_two_have_postgresql() -> None:
    file, postgresql = DEPLOYMENTS
    assert (file["spec"]["replicas"], file["spec"]["strategy"]) == (1, {"type": "Recreate"})
    assert postgresql["spec"]["replicas"] == 2
    assert postgresql["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


@pytest.mark.parametrize("each", JOBS + DEPLOYMENTS, ids=named)
def test_each_pod_runs_as_the_user_of_the_image_and_may_do_little(each: Any) -> None:
    of_pod, of_container = pod(each)["securityContext"], container(each)["securityContext"]
    user = f"{of_pod['runAsUser']}:{of_pod['runAsGroup']}"
    assert f"\nUSER {user}\n" in (ROOT / "Dockerfile").read_text()
    assert of_pod["runAsNonRoot"]
    assert of_pod["fsGroup"] == of_pod["runAsGroup"]
    assert of_container["readOnlyRootFilesystem"]
    assert not of_container["allowPrivilegeEscalation"]
    assert of_container["capabilities"] == {"drop": ["ALL"]}
    assert not pod(each)["automountServiceAccountToken"]
    written = {mount["mountPath"] for mount in container(each)["volumeMounts"]}
    assert written == {"/data", "/tmp"}


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=named)
def test_probes_ask_routes_that_there_are_and_a_stop_has_the_time_that_it_takes(
    deployment: Any,
) -> None:
    service = container(deployment)
    paths = {
        service[probe]["httpGet"]["path"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert paths == {"/health/live", "/health/ready"} & {route.path for route in ROUTES}
    settings = {each["name"]: each.get("value") for each in service["env"]}
    assert {name for name in settings if name.startswith("STOREKEEPER_")} <= {*VARIABLES.values()}
    sleep = int(service["lifecycle"]["preStop"]["exec"]["command"][1])
    delay = int(settings["STOREKEEPER_DRAIN_DELAY"])
    stop = GRACEFUL_TIMEOUT + 2
    assert pod(deployment)["terminationGracePeriodSeconds"] >= sleep + delay + stop


def test_each_of_the_two_ways_is_applied_by_its_label_and_sends_clients_to_its_pods() -> None:
    for way in ("file", "postgresql"):
        mine = [each for each in OBJECTS if each["metadata"]["labels"]["database"] == way]
        (service,) = (each for each in mine if each["kind"] == "Service")
        (deployment,) = (each for each in mine if each["kind"] == "Deployment")
        (job,) = (each for each in mine if each["kind"] == "Job")
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert (
            service["spec"]["selector"] == labels == deployment["spec"]["selector"]["matchLabels"]
        )
        assert job["spec"]["template"]["metadata"]["labels"] != labels


def test_the_memory_is_that_of_the_unit() -> None:
    unit = (ROOT / "deploy/storekeeper.service").read_text()
    assert "\nMemoryMax=2G\n" in unit
    for deployment in DEPLOYMENTS:
        assert container(deployment)["resources"]["limits"] == {"memory": "2Gi"}
