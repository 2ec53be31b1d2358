"""`deploy/`: schemas accept the files, the image's steps run, the dashboard and the settings name real parts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import requires
from pathlib import Path
from shutil import copy, which
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from chainfolio import __version__
from chainfolio.cli.main import parser
from chainfolio.settings_file import load
from tests.docs.test_alerts import METRIC, METRICS
from tests.e2e.running import ROOT
from tests.packaging.dockerfile import Build, Stage, context, stages

DEPLOY = ROOT / "deploy"
VENDOR = Path(__file__).parent / "vendor"
STAGES = stages((DEPLOY / "Dockerfile").read_text())
IMAGE = STAGES[-1]
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text())
OURS = {name: each for name, each in COMPOSE["services"].items() if each["image"] == "chainfolio"}
MANIFESTS: dict[str, dict[str, Any]] = {
    f"{path.stem}-{document['kind']}": document
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
}
PODS = {name: each["spec"]["template"] for name, each in MANIFESTS.items() if each["kind"] == "Deployment"}
DASHBOARD = json.loads((DEPLOY / "grafana" / "chainfolio.json").read_text())
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"] if panel["type"] != "row"}
PINNED = re.compile(r"^([\w.-]+)==\S+", re.M)
CLOSING_S = 10  # for the stores, after the last answer
SECRETS = {
    "CHAINFOLIO_DATABASE": "postgresql://u:p@postgres/chainfolio",
    "ETHEREUM_RPC": "http://127.0.0.1:8545",
}


def sent_files() -> list[str]:
    """The files of the build context."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
    return list(context(ROOT, (DEPLOY / "Dockerfile.dockerignore").read_text(), list(filter(None, names))))


# --- the image -------------------------------------------------------------------------------------------------------


def test_the_image_runs_without_rights_and_ends_by_the_signal_of_the_server() -> None:
    assert IMAGE.single("USER") == "10001:10001"
    assert IMAGE.single("STOPSIGNAL") == "SIGTERM"
    assert parser().parse_args(IMAGE.arguments("CMD")).run
    assert IMAGE.arguments("ENTRYPOINT") == ["chainfolio"]
    assert not [step for step in IMAGE.all("RUN") if "pip" in step], "what builds is left in other stages"


def test_every_package_of_the_image_has_a_hash_of_the_lock() -> None:
    installs = [step for stage in STAGES for step in stage.all("RUN") if "pip install" in step]
    assert all("--require-hashes" in step or "--no-index" in step for step in installs)
    lock = set((ROOT / "requirements.lock").read_text().splitlines())
    for part in ("requirements.lock", "build.lock"):
        lines = (DEPLOY / part).read_text().splitlines()
        names = [line for line in lines if not line.startswith("    ")]
        assert {line for line in lines if line.startswith("    --hash=")} <= lock
        assert {line.split(" ")[0] for line in names} <= {line.split(" ")[0] for line in lock}


def closure(name: str, extras: frozenset[str]) -> set[str]:
    """The packages that a package needs on this machine, by what is installed."""
    packages: set[tuple[str, frozenset[str]]] = set()
    pending = [(canonicalize_name(name), extras)]
    while pending:
        if (package := pending.pop()) in packages:
            continue
        packages.add(package)
        for each in map(Requirement, requires(package[0]) or []):
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in (*package[1], "")):
                pending.append((canonicalize_name(each.name), frozenset(each.extras)))
    return {name for name, _ in packages}


def test_the_image_has_all_that_the_extras_need() -> None:
    locked = {canonicalize_name(name) for name in PINNED.findall((DEPLOY / "requirements.lock").read_text())}
    assert closure("chainfolio", frozenset({"all"})) - {"chainfolio"} <= locked
    built = {canonicalize_name(name) for name in PINNED.findall((DEPLOY / "build.lock").read_text())}
    assert closure("hatchling", frozenset()) <= built


def test_the_build_context_has_the_sources_and_no_tests_or_data() -> None:
    names = sent_files()
    tops = {Path(name).parts[0] for name in names}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]) <= tops
    links = {path.name for path in (ROOT / "chainfolio").iterdir() if path.is_symlink()}
    assert links <= tops, "each link of the package leads to a folder of the context"
    assert not tops & {"tests", "bench", "docs", ".git", ".ci", "data"}
    assert not [name for name in names if Path(name).suffix in (".env", ".db")]
    for stage in STAGES:
        for line in stage.all("COPY"):
            source = line.split()[-2]
            assert "--from=" in line or source == "." or source in names


class Answers(BaseHTTPRequestHandler):
    """Answers with the status of the server."""

    def do_GET(self) -> None:
        status: int = self.server.status  # type: ignore[attr-defined]
        self.send_response(status if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_the_health_check_of_the_image_fails_with_the_server() -> None:
    check = IMAGE.single("HEALTHCHECK")
    code = json.loads(check[check.index("[") :])
    assert code[:2] == ["python", "-c"]
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        run = [sys.executable, "-c", code[2].replace("8080", str(server.server_port))]
        ends = []
        for server.status in (200, 503):  # type: ignore[attr-defined]
            ends.append(subprocess.run(run, capture_output=True, check=False).returncode)
        server.shutdown()
    ends.append(subprocess.run(run, capture_output=True, check=False).returncode)
    assert ends == [0, 1, 1]


def test_rules_of_the_build_context_and_continued_lines_are_read(tmp_path: Path) -> None:
    ignore = "*\n!a\n!b/c.txt\n**/cache\n"
    names = ["a/z", "b/c.txt", "b/d.txt", "x", "a/cache/y"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert list(context(tmp_path, ignore, names)) == ["a/z", "b/c.txt"]
    assert stages("FROM a AS b\nRUN x \\\n  y\n# z\nFROM c\nUSER d\n") == [
        Stage("b", "a", [("RUN", "x y")]),
        Stage("", "c", [("USER", "d")]),
    ]


@pytest.mark.slow("downloads and installs the packages of the image")
@pytest.mark.timeout(900)
def test_the_steps_of_the_image_run_in_a_clean_folder(tmp_path: Path) -> None:
    """Run each RUN step as written, in a mount namespace where /opt, /etc and /var/lib are folders of the test."""
    if which("unshare") is None or subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("mount namespaces are not allowed here")
    build = Build(tmp_path / "image", tmp_path / "sent")
    for name in sent_files():
        (build.context / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, build.context / name, follow_symlinks=False)
    build.folder.mkdir()
    try:
        for stage in STAGES:
            build.run(stage)
    except AssertionError as error:
        if "No matching distribution" in str(error) or "Connection" in str(error):
            pytest.skip("packages cannot be downloaded here")
        raise
    work = build.folder / "build" / "last"
    assert build.shell("chainfolio --version", work).split() == ["chainfolio", __version__]
    assert build.shell("stat -c '%u %g %a' /var/lib/chainfolio", work).split() == ["10001", "10001", "700"]
    as_user = "setpriv --reuid 10001 --regid 10001 --clear-groups"
    assert "mount" not in build.shell(f"{as_user} chainfolio account create --help", work)


# --- the files of services -------------------------------------------------------------------------------------------


def faults(document: Any, schema: dict[str, Any], kind: str = "") -> list[str]:
    """Return the faults that a schema finds; of Kubernetes, the schema of a kind."""
    if kind:
        schema = {"$defs": schema["$defs"], "$ref": f"#/$defs/{kind}"}
    # Importing it compiles grammars for two seconds, in every process that collects this test.
    from jsonschema import Draft201909Validator, Draft202012Validator

    validator = Draft202012Validator(schema) if kind else Draft201909Validator(schema)
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(document)]


def test_the_compose_specification_accepts_the_services() -> None:
    schema = json.loads((VENDOR / "compose-spec.json").read_text())
    assert faults(COMPOSE, schema) == []
    broken = {**COMPOSE, "services": {"api": {"image": "x", "portz": ["1"]}}}
    assert faults(broken, schema), "the schema would have noticed"


@pytest.mark.parametrize("name", MANIFESTS)
def test_kubernetes_accepts_a_manifest(name: str) -> None:
    schema = json.loads((VENDOR / "kubernetes-1.34.json").read_text())
    document = MANIFESTS[name]
    assert faults(document, schema, document["kind"]) == []
    assert document["kind"] == "Namespace" or document["metadata"]["namespace"] == "chainfolio"
    document = json.loads(json.dumps(document))
    document["metadata"]["labelz"] = "x"
    assert faults(document, schema, document["kind"]), "the schema would have noticed"


def test_pods_and_services_run_commands_that_exist_and_finish_answers_before_they_are_killed() -> None:
    settings = load(DEPLOY / "chainfolio.toml", SECRETS)
    needed_s = settings.server.stop_notice_s + settings.limits.request_s + CLOSING_S
    grace_s = [int(service["stop_grace_period"].removesuffix("s")) for service in OURS.values()]
    grace_s += [pod["spec"]["terminationGracePeriodSeconds"] for pod in PODS.values()]
    for unit in (DEPLOY / "systemd").glob("*.service"):
        grace_s += map(int, re.findall(r"^TimeoutStopSec=(\d+)$", unit.read_text(), re.M))
    assert len(grace_s) == len(OURS) + len(PODS) + 3
    serving = (DEPLOY / "systemd/chainfolio.service").read_text()
    assert "\nKillMode=mixed\n" in serving, "workers of the server are ended by it, once"
    assert min(grace_s) >= needed_s
    for service in OURS.values():
        assert parser().parse_args(service["command"]).run
        assert service["read_only"]
    for pod in PODS.values():
        (container,) = pod["spec"]["containers"]
        assert parser().parse_args(container["args"]).run
        assert f"{pod['spec']['securityContext']['runAsUser']}:10001" == IMAGE.single("USER")
        assert container["securityContext"]["readOnlyRootFilesystem"]
        mounted = {each["name"] for each in container["volumeMounts"]}
        assert mounted == {each["name"] for each in pod["spec"]["volumes"]}
        ports = {each["name"] for each in container.get("ports", [])}
        probes = [value for key, value in container.items() if key.endswith("Probe")]
        assert {probe["httpGet"]["port"] for probe in probes} <= ports


def test_every_selector_of_the_manifests_chooses_a_pod() -> None:
    labels = [pod["metadata"]["labels"] for pod in PODS.values()]
    chosen = re.findall(r"(?:selector|podSelector): (?:\{matchLabels: )?\{([^{}]*)\}", all_manifests())
    assert chosen
    for selector in chosen:
        selector_labels = dict(part.split(": ") for part in selector.split(", "))
        assert any(selector_labels.items() <= each.items() for each in labels), selector
    assert MANIFESTS["api-HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == "api"


def all_manifests() -> str:
    """The text of all manifests."""
    return "".join(path.read_text() for path in (DEPLOY / "kubernetes").glob("*.yaml"))


def test_settings_of_containers_are_settings_with_secrets_from_the_environment(tmp_path: Path) -> None:
    mounted = tmp_path / "chainfolio.toml"
    mounted.write_text(MANIFESTS["settings-ConfigMap"]["data"]["chainfolio.toml"])
    for path in (DEPLOY / "chainfolio.toml", mounted):
        config = load(path, SECRETS)
        assert config.server.host == "0.0.0.0"
        assert config.server.metrics_port == 9464
        assert config.server.stop_notice_s == 10
        assert config.state_url == config.tail_url == SECRETS["CHAINFOLIO_DATABASE"]
        assert config.lake.uri.startswith("s3://")
    for service in OURS.values():
        assert SECRETS.keys() <= service["environment"].keys()
        assert all(
            "${" in value for key, value in service["environment"].items() if "PASSWORD" in key or "SECRET" in key
        )
    assert set(re.findall(r"\$\{(\w+):\?\}", (DEPLOY / "compose.yml").read_text())) == set(
        re.findall(r"^(\w+)=", (ROOT / "docs/how-to/deploy.md").read_text(), re.M)
    ) - {"COMPOSE_PROJECT_NAME"}


def test_images_of_the_services_have_a_version() -> None:
    images = [each["image"] for name, each in COMPOSE["services"].items() if name not in OURS]
    assert all(re.fullmatch(r"[\w./-]+:(?!latest)[\w.-]*\d[\w.-]*", image) for image in images)


# --- what watches ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_uses_metrics_and_labels_that_exist(title: str) -> None:
    (target,) = PANELS[title]["targets"]
    names = set(METRIC.findall(target["expr"]))
    assert names
    assert names <= METRICS.keys()
    grouped = [name for group in re.findall(r"\bby \(([^)]*)\)", target["expr"]) for name in group.split(", ")]
    selected = re.findall(r"[{,]\s*(\w+)\s*(?:=~|!~|!=|=)\s*\"", target["expr"])
    label_names = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    labels = set.intersection(*(METRICS[name] for name in names))
    assert {*grouped, *selected} <= labels
    assert label_names <= (set(grouped) if grouped else labels)
    assert "_total" not in target["expr"] or re.search(r"\b(rate|increase)\(", target["expr"])


def test_the_panels_do_not_overlap_and_ask_the_source_that_is_provisioned() -> None:
    occupied: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & occupied
        assert max(x for x, _ in cells) < 24
        occupied |= cells
    provisioned = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/chainfolio.yml").read_text())
    (source,) = provisioned["datasources"]
    assert {panel["datasource"]["uid"] for panel in PANELS.values()} == {source["uid"]}
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    (variable,) = DASHBOARD["templating"]["list"]
    assert set(METRIC.findall(variable["query"])) <= METRICS.keys()


def test_prometheus_scrapes_the_metrics_port_of_every_service_that_has_one() -> None:
    scraped = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    (scrape,) = scraped["scrape_configs"]
    assert scrape["job_name"] == "chainfolio"
    workers = int(OURS["api"]["command"][-1])
    expected = [f"api:{9464 + number}" for number in range(workers)] + ["worker:9464"]
    assert scrape["static_configs"] == [{"targets": expected}]
    mounts = " ".join(COMPOSE["services"]["prometheus"]["volumes"] + COMPOSE["services"]["grafana"]["volumes"])
    for local in re.findall(r"\./([\w./-]+):", mounts):
        assert (DEPLOY / local).exists()


def test_units_of_workers_are_confined_as_the_unit_of_the_server_is() -> None:
    changing = ("Description=", "ExecStart=", "Environment=", "#")
    texts = {path.stem: path.read_text() for path in (DEPLOY / "systemd").glob("*.service")}
    assert set(texts) == {"chainfolio", "chainfolio-worker", "chainfolio-jobs@"}
    common_lines = {
        name: [line for line in text.splitlines() if not line.startswith(changing)] for name, text in texts.items()
    }
    assert "RestartSec=5" in common_lines["chainfolio"], "systemd gives up after five starts within ten seconds"
    for name, text in texts.items():
        assert common_lines[name] == common_lines["chainfolio"]
        (command,) = re.findall(r"^ExecStart=/opt/chainfolio/bin/chainfolio (.*)$", text, re.M)
        assert parser().parse_args(command.split()).run
