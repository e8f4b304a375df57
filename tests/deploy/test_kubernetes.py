"""deploy/kubernetes: every manifest against Kubernetes' own schemas, as kustomize puts them together, and promises."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.settings import Settings, load_settings
from holdfast.workers.gateway import STOP_SECONDS as GATEWAY_STOP_SECONDS
from holdfast.workers.gateway.auth import HEALTH_PATH, READY_PATH
from holdfast.workers.runtime.worker import stop_seconds
from tests.deploy.container import recipe
from tests.deploy.support import DEPLOY, ROOT, Caller, checked, documents, loaded
from tests.support.server import address_of, start_server

FOLDER = DEPLOY / "kubernetes"
FILES = sorted(FOLDER.rglob("*.yaml"))
GUIDE = (FOLDER / "README.md").read_text()
NOT_WHOLE = ("keda", "mtls", "version")
"""Folders whose manifests are patches, or of a kind that is not Kubernetes' own."""
PLAIN = [file for file in FILES if file.name != "kustomization.yaml" and file.parent.name not in NOT_WHOLE]
FOLDERS = sorted(file.parent for file in FILES if file.name == "kustomization.yaml")
WORKLOADS = ("worker", "gateway")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
PROVIDERS = [name for name, needs in EXTRAS.items() if needs[0].startswith(f"pydantic-ai-slim[{name}]")]
"""Of models, each an extra of ours."""


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


# Put together


@pytest.fixture(scope="module")
def kustomize() -> tuple[str, ...]:
    """The command that puts kustomizations together. Debian 12 has none that is new enough, nor has PyPI."""
    if not shutil.which("kubectl"):
        pytest.skip("UNCHECKED: no kubectl here to put deploy/kubernetes together; install 1.27 or newer")
    said = json.loads(checked("kubectl", "version", "--client", "--output", "json"))
    version = str(said.get("kustomizeVersion", "v0"))
    if int(version.removeprefix("v").partition(".")[0]) < 5:
        pytest.skip(f"UNCHECKED: the kustomize of this kubectl is {version}; install kubectl 1.27 or newer")
    return "kubectl", "kustomize"


class Tree:
    """A copy of deploy/kubernetes that somebody made theirs."""

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        self.folder, self.command = folder / "kubernetes", command
        shutil.copytree(FOLDER, self.folder)

    def copy(self, name: str, new: str, *changes: tuple[str, str]) -> str:
        """A copy of an example, with changes to what it says."""
        text = (self.folder / name / "kustomization.yaml").read_text()
        for old, now in changes:
            assert old in text
            text = text.replace(old, now)
        (self.folder / new).mkdir(exist_ok=True)
        (self.folder / new / "kustomization.yaml").write_text(text)
        return new

    def made(self, name: str) -> list[dict[str, Any]]:
        """What comes of it, each of which Kubernetes takes; KEDA's own kinds have no schema here."""
        text = checked(self.command[0], *self.command[1:], self.folder / name)
        plain = self.folder.parent / f"{name}.yaml"
        plain.write_text("\n---\n".join(one for one in text.split("\n---\n") if "keda.sh/" not in one))
        checked("kubernetes-validate", "--strict", plain)
        return documents(text)


@pytest.fixture
def tree(tmp_path: Path, kustomize: tuple[str, ...]) -> Tree:
    return Tree(tmp_path, kustomize)


def only(made: Sequence[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    """The one of a kind."""
    [found] = [one for one in made if one["kind"] == kind and one["metadata"]["name"].startswith(name)]
    return found


def environment(worker: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one for one in worker["spec"]["template"]["spec"]["containers"][0]["env"]}


@pytest.mark.parametrize("folder", ["base", "example", "example-version"])
def test_what_kustomize_puts_together_is_what_kubernetes_takes(tree: Tree, folder: str) -> None:
    assert tree.made(folder)


def test_with_certificates_and_keda_it_can_be_put_together_too(tree: Tree) -> None:
    made = tree.made(tree.copy("example", "mine", ("  - ../autoscaling\n", "  - ../keda\n  - ../mtls\n")))
    worker = only(made, "StatefulSet")
    assert only(made, "ScaledObject")["spec"]["scaleTargetRef"]["name"] == worker["metadata"]["name"]
    assert "replicas" not in worker["spec"]
    known = {"TEMPORAL_TLS_CLIENT_CERT_PATH", "TEMPORAL_TLS_CLIENT_KEY_PATH", "HOLDFAST_CONFIG"}
    assert known <= set(environment(worker))


@pytest.mark.parametrize("cloud", ["eks", "gke"])
def test_with_traces_and_a_bucket_it_can_be_put_together_too(tree: Tree, cloud: str) -> None:
    more = f"  - ../autoscaling\n  - ../traces\n  - ../bucket/{cloud}\n"
    made = tree.made(tree.copy("example", "mine", ("  - ../autoscaling\n", more)))
    assert only(made, "NetworkPolicy", "holdfast-identity")
    said = only(made, "ConfigMap", "holdfast-temporal")["data"]
    [rule] = only(made, "NetworkPolicy", "holdfast-traces")["spec"]["egress"]
    assert said["OTEL_EXPORTER_OTLP_ENDPOINT"].endswith(f":{rule['ports'][0]['port']}")
    assert said["TEMPORAL_ADDRESS"] == "temporal.example.com:7233", "merged, not replaced"


def test_versions_share_nothing_that_one_of_them_could_take_away(tree: Tree) -> None:
    """Each is applied and deleted by itself, and none counts, scales or holds up the pods of another."""
    shared = tree.made(tree.copy("example", "mine", ("  - ../autoscaling\n", "  - ../shared\n")))
    certified = ("  # - ../mtls ", "  - ../mtls #")
    versions = {
        build: tree.made(tree.copy("example-version", f"example-{build}", ("v1\n", f"{build}\n"), certified))
        for build in ("v1", "v2")
    }
    every = [(one["kind"], one["metadata"]["name"]) for made in (shared, *versions.values()) for one in made]
    assert len(every) == len(set(every))
    assert {one["kind"] for one in shared} >= {"Deployment", "NetworkPolicy", "PersistentVolumeClaim", "ServiceAccount"}
    assert not [one for one in shared if one["kind"] == "StatefulSet"]
    claims = {one["metadata"]["name"] for one in shared if one["kind"] == "PersistentVolumeClaim"}
    budget = only(shared, "PodDisruptionBudget", "holdfast-worker")["spec"]["selector"]["matchLabels"]
    for build, made in versions.items():
        kinds = {one["kind"] for one in made}
        assert kinds == {"ConfigMap", "HorizontalPodAutoscaler", "Service", "StatefulSet"}
        worker = only(made, "StatefulSet")
        name, spec = worker["metadata"]["name"], worker["spec"]
        assert name == f"holdfast-worker-{build}" == spec["serviceName"]
        assert only(made, "HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["name"] == name
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"]["holdfast-build"] == labels["holdfast-build"] == build
        assert only(made, "Service")["spec"]["selector"]["holdfast-build"] == build
        assert spec["volumeClaimTemplates"][0]["metadata"]["labels"]["holdfast-build"] == build
        assert budget.items() <= labels.items(), "one budget for all: a pod with two cannot be evicted"
        known = environment(worker)
        assert known["HOLDFAST_BUILD"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['holdfast-build']"
        assert "TEMPORAL_TLS_CLIENT_CERT_PATH" in known
        volumes = spec["template"]["spec"]["volumes"]
        used = {one["persistentVolumeClaim"]["claimName"] for one in volumes if "persistentVolumeClaim" in one}
        assert used <= claims
        assert spec["template"]["spec"]["serviceAccountName"] == only(shared, "ServiceAccount")["metadata"]["name"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_kustomization_names_files_that_are_there(folder: Path) -> None:
    found = loaded(folder / "kustomization.yaml")
    named = [*found.get("resources", ()), *found.get("components", ())]
    named += [patch["path"] for patch in found.get("patches", ()) if "path" in patch]
    named += [name for made in found.get("configMapGenerator", ()) for name in made.get("files", ())]
    assert all((folder / name).exists() for name in named)
    assert {"kind": found["kind"]} in ({"kind": "Kustomization"}, {"kind": "Component"})


@pytest.mark.parametrize(
    "order", ["  - ../shared\n  - ../mtls\n", "  - ../mtls\n  - ../shared\n"], ids=["after", "before"]
)
def test_what_versions_share_has_its_certificate_in_either_order(tree: Tree, order: str) -> None:
    made = tree.made(tree.copy("example", "mine", ("  - ../autoscaling\n", order)))
    assert not [one for one in made if one["kind"] == "StatefulSet"]
    assert "TEMPORAL_TLS_CLIENT_CERT_PATH" in environment(only(made, "Deployment"))


@pytest.mark.parametrize(
    "order", ["  - ../version\n  - ../mtls\n", "  - ../mtls\n  - ../version\n"], ids=["after", "before"]
)
def test_a_version_has_its_certificate_in_either_order(tree: Tree, order: str) -> None:
    made = tree.made(tree.copy("example-version", "mine", ("  - ../version\n", order)))
    assert not [one for one in made if one["kind"] == "Deployment"]
    assert "TEMPORAL_TLS_CLIENT_CERT_PATH" in environment(only(made, "StatefulSet"))


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
    [version] = documents((FOLDER / "version" / "worker.yaml").read_text())
    assert version["metadata"]["name"] == workload("worker")["metadata"]["name"]
    assert version["spec"]["template"]["spec"]["containers"][0]["name"] == container("worker")["name"]
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


def secret_names() -> set[str]:
    """The keys of the Secret that pods refer to."""
    found = (variable.get("valueFrom", {}) for name in WORKLOADS for variable in _variables(workload(name)))
    return {one["secretKeyRef"]["key"] for one in found if "secretKeyRef" in one}


@pytest.mark.usefixtures("kustomize")
def test_the_guides_secret_holds_what_is_set_and_no_empty_key() -> None:
    """Its own line, by kubectl itself, which is told to make nothing. Some variables are set, the others empty."""
    [line] = re.findall(r"(kubectl --namespace holdfast create secret generic (?:.*\n){2})", GUIDE)
    assert set(re.findall(r"[A-Z_]+_(?:KEY|LEDGER)", line)) == secret_names()
    said = {**dict.fromkeys(secret_names(), ""), "HOLDFAST_LEDGER": "postgresql://a:b=@c/d", "GOOGLE_API_KEY": "g"}
    made = checked("bash", "-euc", f"{line.rstrip()} --dry-run=client --output=json", env=said)
    assert set(json.loads(made)["data"]) == {"HOLDFAST_LEDGER", "GOOGLE_API_KEY"}


async def test_a_worker_starts_in_the_namespace_that_the_guide_makes(tmp_path: Path) -> None:
    """With its own line, on a real server that has no such namespace."""
    [words] = re.findall(r"exec deployment/temporal-admintools -- \\\n +(temporal operator namespace .*)\n", GUIDE)
    literals = loaded(FOLDER / "example" / "kustomization.yaml")["configMapGenerator"][0]["literals"]
    [namespace] = [one.partition("=")[2] for one in literals if one.startswith("TEMPORAL_NAMESPACE=")]
    async with await start_server(tmp_path / "temporal.db") as server:
        address = {"TEMPORAL_ADDRESS": address_of(server)}
        await asyncio.to_thread(checked, *shlex.split(words), env={**address, "HOME": str(tmp_path)})
        caller = Caller(tmp_path, **address, TEMPORAL_NAMESPACE=namespace)
        async with caller.staying("worker"):
            pass


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_image_and_the_pods_are_ready_for_each_provider_of_models(provider: str) -> None:
    assert provider in recipe().extras
    assert f"{provider.upper()}_API_KEY" in secret_names()
    assert f"#{provider.upper()}_API_KEY=" in (DEPLOY / "systemd" / "holdfast.env.example").read_text()
    for line in re.findall(r"install\.sh /opt/\S+ (.*)", (DEPLOY / "systemd" / "README.md").read_text()):
        assert provider in line.split()


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
    probes = ("startupProbe", "livenessProbe", "readinessProbe")
    paths = {name: container("worker")[name]["httpGet"]["path"] for name in probes}
    assert paths == {"startupProbe": "/live", "livenessProbe": "/live", "readinessProbe": "/ready"}
    paths = {name: container("gateway")[name]["httpGet"]["path"] for name in probes}
    assert paths == {"startupProbe": HEALTH_PATH, "livenessProbe": HEALTH_PATH, "readinessProbe": READY_PATH}
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


# The network


def policy(*parts: str) -> dict[str, Any]:
    """The first network policy of a file."""
    return documents(FOLDER.joinpath(*parts, "network.yaml").read_text())[0]


def opened(found: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """The blocks of addresses that a policy lets out to, with their ports."""
    for rule in found["spec"]["egress"]:
        for block in (peer["ipBlock"]["cidr"] for peer in rule["to"] if "ipBlock" in peer):
            yield from ((block, port["port"]) for port in rule["ports"])


@pytest.mark.parametrize(
    ("cloud", "addresses"),
    [("eks", {"169.254.170.23", "fd00:ec2::23"}), ("gke", {"169.254.169.254", "169.254.169.252"})],
)
def test_S45_a_bucket_opens_the_way_to_its_identity_and_to_no_other(cloud: str, addresses: set[str]) -> None:
    """On EKS 169.254.169.254 would be the identity of the node."""
    blocks = [ip_network(block) for block, _ in opened(policy("bucket", cloud))]
    assert {str(block.network_address) for block in blocks} == addresses
    assert all(block.num_addresses == 1 for block in blocks)
    assert {port for block, port in opened(policy("base")) if block.startswith("169.254.")} == {53, 5353}


def test_traces_may_go_where_the_collector_listens() -> None:
    [made] = loaded(FOLDER / "traces" / "kustomization.yaml")["configMapGenerator"]
    [port] = [port["port"] for rule in policy("traces")["spec"]["egress"] for port in rule["ports"]]
    [literal] = made["literals"]
    assert re.fullmatch(rf"OTEL_EXPORTER_OTLP_ENDPOINT=http://[a-z.-]+:{port}", literal)
    assert "otel" in recipe().extras
