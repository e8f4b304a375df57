"""deploy/kubernetes: every manifest against Kubernetes' own schemas, as kustomize puts them together, and promises."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.settings import Settings, load_settings
from holdfast.workers.gateway import STOP_SECONDS as GATEWAY_STOP_SECONDS
from holdfast.workers.gateway.guard import HEALTH
from holdfast.workers.worker import stop_seconds
from tests.deploy.container import recipe
from tests.deploy.support import DEPLOY, checked, documents, loaded

FOLDER = DEPLOY / "kubernetes"
FILES = sorted(FOLDER.rglob("*.yaml"))
PLAIN = [file for file in FILES if file.name != "kustomization.yaml" and file.parent.name not in ("keda", "mtls")]
FOLDERS = sorted(file.parent for file in FILES if file.name == "kustomization.yaml")
WORKLOADS = ("worker", "gateway")


def settings() -> Settings:
    return load_settings(FOLDER / "base" / "holdfast.toml")


def workload(name: str) -> dict[str, Any]:
    """The StatefulSet or the Deployment, by its short name."""
    [found] = [one for one in documents((FOLDER / "base" / f"{name}.yaml").read_text()) if "template" in one["spec"]]
    return found


def pod(name: str) -> dict[str, Any]:
    found: dict[str, Any] = workload(name)["spec"]["template"]["spec"]
    return found


def container(name: str) -> dict[str, Any]:
    [found] = pod(name)["containers"]
    return dict(found)


@pytest.mark.parametrize("file", PLAIN, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_each_manifest_is_what_kubernetes_takes(file: Path) -> None:
    checked("kubernetes-validate", "--strict", file)


def test_what_kustomize_puts_together_is_what_kubernetes_takes(tmp_path: Path) -> None:
    """Where kubectl is installed: Debian has none that is new enough. What it reads is checked below in any case."""
    for folder in ("base", "example"):
        if shutil.which("kubectl"):
            made = tmp_path / f"{folder}.yaml"
            made.write_text(checked("kubectl", "kustomize", FOLDER / folder))
            checked("kubernetes-validate", "--strict", made)


def test_with_certificates_and_keda_it_can_be_put_together_too(tmp_path: Path) -> None:
    if not shutil.which("kubectl"):
        return
    shutil.copytree(FOLDER, tmp_path / "kubernetes")
    file = tmp_path / "kubernetes" / "example" / "kustomization.yaml"
    text = file.read_text()
    file.write_text(text.replace("  - ../autoscaling\n", "  - ../keda\n  - ../mtls\n"))
    made = documents(checked("kubectl", "kustomize", file.parent))
    [scaled] = [one for one in made if one["kind"] == "ScaledObject"]
    [worker] = [one for one in made if one["kind"] == "StatefulSet"]
    assert scaled["spec"]["scaleTargetRef"]["name"] == worker["metadata"]["name"]
    assert "replicas" not in worker["spec"]
    variables = {one["name"] for one in worker["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert {"TEMPORAL_TLS_CLIENT_CERT_PATH", "TEMPORAL_TLS_CLIENT_KEY_PATH", "HOLDFAST_CONFIG"} <= variables
    plain = tmp_path / "plain.yaml"
    kept = [one for one in checked("kubectl", "kustomize", file.parent).split("\n---\n") if "keda.sh/" not in one]
    plain.write_text("\n---\n".join(kept))
    checked("kubernetes-validate", "--strict", plain)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_kustomization_names_files_that_are_there(folder: Path) -> None:
    found = loaded(folder / "kustomization.yaml")
    named = [*found.get("resources", ()), *found.get("components", ())]
    named += [patch["path"] for patch in found.get("patches", ()) if "path" in patch]
    named += [name for made in found.get("configMapGenerator", ()) for name in made.get("files", ())]
    assert all((folder / name).exists() for name in named)
    assert {"kind": found["kind"]} in ({"kind": "Kustomization"}, {"kind": "Component"})


def test_the_names_that_patches_and_references_use_are_there() -> None:
    base = loaded(FOLDER / "base" / "kustomization.yaml")
    maps = {made["name"] for made in base["configMapGenerator"]}
    claims = {one["metadata"]["name"] for one in documents((FOLDER / "base" / "storage.yaml").read_text())}
    for name in WORKLOADS:
        volumes = pod(name)["volumes"]
        assert {volume["configMap"]["name"] for volume in volumes if "configMap" in volume} <= maps
        used = {volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume}
        assert used <= claims
        assert [one["configMapRef"]["name"] for one in container(name)["envFrom"]] == ["holdfast-temporal"]
        mounted = {mount["name"] for mount in container(name)["volumeMounts"]}
        templates = {made["metadata"]["name"] for made in workload(name)["spec"].get("volumeClaimTemplates", ())}
        assert mounted == {volume["name"] for volume in volumes} | templates
        [patch] = documents((FOLDER / "mtls" / f"{name}.yaml").read_text())
        assert (patch["kind"], patch["metadata"]["name"]) == (
            workload(name)["kind"],
            workload(name)["metadata"]["name"],
        )
        assert patch["spec"]["template"]["spec"]["containers"][0]["name"] == container(name)["name"]
    for folder in ("autoscaling", "keda"):
        [scaler] = documents((FOLDER / folder / "worker.yaml").read_text())
        target = scaler["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) == ("StatefulSet", workload("worker")["metadata"]["name"])


# The promises


def test_S36_a_pod_is_given_longer_to_end_than_its_worker_takes_and_a_worker_longer_than_a_command() -> None:
    given = pod("worker")["terminationGracePeriodSeconds"]
    assert given > stop_seconds(settings())
    assert (settings().worker.grace_seconds or 0) >= settings().tools.shell.timeout_seconds
    [sleeps] = [int(container("gateway")["lifecycle"]["preStop"]["exec"]["command"][1])]
    assert pod("gateway")["terminationGracePeriodSeconds"] > GATEWAY_STOP_SECONDS + sleeps


def test_S36_a_worker_is_the_same_host_when_it_comes_back() -> None:
    assert workload("worker")["kind"] == "StatefulSet"
    [data] = workload("worker")["spec"]["volumeClaimTemplates"]
    assert data["spec"]["accessModes"] == ["ReadWriteOnce"]
    places = {mount["mountPath"]: mount["name"] for mount in container("worker")["volumeMounts"]}
    assert places[recipe().environment["HOLDFAST_DATA"]] == "data"
    assert places[recipe().environment["HOLDFAST_DATA"] + "/payloads"] == "payloads"
    assert places[recipe().environment["HOLDFAST_WORKSPACE"]] == "workspace"
    kept = workload("worker")["spec"]["persistentVolumeClaimRetentionPolicy"]
    assert set(kept.values()) == {"Retain"}


@pytest.mark.parametrize("name", WORKLOADS)
def test_S45_no_pod_is_root_or_may_become_it_or_can_write_its_image(name: str) -> None:
    whole, own = pod(name)["securityContext"], container(name)["securityContext"]
    uid = recipe().user
    assert (whole["runAsNonRoot"], whole["runAsUser"], whole["fsGroup"]) == (True, uid, uid)
    assert whole["seccompProfile"] == {"type": "RuntimeDefault"}
    assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert pod(name)["automountServiceAccountToken"] is False
    assert set(container(name)["resources"]) == {"requests", "limits"}


def test_S45_secrets_are_referred_to_and_stand_nowhere() -> None:
    for file in FILES:
        for document in documents(file.read_text()):
            assert document["kind"] != "Secret"
            for variable in _variables(document):
                secret = any(word in variable["name"] for word in ("KEY", "LEDGER", "TOKEN", "PASSWORD"))
                by_path = variable["name"].endswith("_PATH")
                assert "secretKeyRef" in variable.get("valueFrom", {}) or not secret or by_path, variable


def _variables(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield from value.get("env", ()) if isinstance(value.get("env"), list) else ()
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _variables(one)


def test_probes_ask_where_the_processes_answer() -> None:
    assert settings().worker.health == f"0.0.0.0:{container('worker')['ports'][0]['containerPort']}"
    assert settings().gateway.port == container("gateway")["ports"][0]["containerPort"]
    paths = {name: container("worker")[name]["httpGet"]["path"] for name in ("livenessProbe", "readinessProbe")}
    assert paths == {"livenessProbe": "/live", "readinessProbe": "/ready"}
    assert container("gateway")["livenessProbe"]["httpGet"]["path"] == HEALTH
    assert (FOLDER / "base" / "holdfast.toml").is_file()
    assert "names" in tomllib.loads((FOLDER / "base" / "holdfast.toml").read_text())["gateway"]


def test_the_scaler_of_keda_looks_at_the_queue_of_the_workers() -> None:
    [scaled] = documents((FOLDER / "keda" / "worker.yaml").read_text())
    [trigger] = scaled["spec"]["triggers"]
    assert trigger["metadata"]["taskQueue"] == Settings(data=Path("/data")).task_queue
    assert scaled["spec"]["minReplicaCount"] >= 1
    literals = loaded(FOLDER / "base" / "kustomization.yaml")["configMapGenerator"][1]["literals"]
    known = {literal.partition("=")[0] for literal in literals}
    assert {trigger["metadata"]["endpointFromEnv"], trigger["metadata"]["namespaceFromEnv"]} <= known
