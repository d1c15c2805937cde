#!/usr/bin/env python3
"""packaging/kubernetes: valid for Kubernetes (kubernetes-validate of PyPI, in the environment that this runs in), and true of
a server that runs with the arguments that stand there: probes, ports, names of metrics.

usage: kubernetes_test.py PAGODA MODEL_DIR REPOSITORY [unittest arguments]
"""
import os
import re
import sys
import unittest

import jsonschema
import kubernetes_validate
import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "clients"))
from server import Server  # noqa: E402

VERSIONS = ("1.31", "1.37")
LABEL = {"type": "string", "pattern": r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$", "maxLength": 63}
NAME = {"type": "string", "minLength": 1, "maxLength": 253}
PORT = {"type": "object", "properties": {"number": {"type": "integer", "minimum": 1, "maximum": 65535}},
        "required": ["number"], "additionalProperties": False}
# What the API of an InferencePool v1 says, in the words of JSON Schema.
POOL = {
    "type": "object",
    "properties": {
        "selector": {"type": "object", "required": ["matchLabels"], "additionalProperties": False, "properties": {
            "matchLabels": {"type": "object", "minProperties": 1, "maxProperties": 64, "additionalProperties": LABEL}}},
        "targetPorts": {"type": "array", "items": PORT, "minItems": 1, "maxItems": 8, "uniqueItems": True},
        "appProtocol": {"enum": ["http", "kubernetes.io/h2c"]},
        "endpointPickerRef": {"type": "object", "required": ["name", "port"], "additionalProperties": False, "properties": {
            "group": {"type": "string"}, "kind": {"const": "Service"}, "name": NAME, "port": PORT,
            "failureMode": {"enum": ["FailOpen", "FailClose"]}}}},
    "required": ["selector", "targetPorts"],
    "additionalProperties": False,
}
pagoda = model = folder = dockerfile = None


def documents(name):
    with open(os.path.join(folder, name)) as file:
        return [each for each in yaml.safe_load_all(file) if each]


def only(name, kind, of_name):
    found = [each for each in documents(name) if each["kind"] == kind and each["metadata"]["name"] == of_name]
    assert len(found) == 1, (name, kind, of_name)
    return found[0]


def pod(file="pagoda.yaml", name="pagoda"):
    return only(file, "Deployment", name)["spec"]["template"]


class Schemas(unittest.TestCase):
    def test_the_kinds_of_kubernetes(self):
        for file in sorted(os.listdir(folder)):
            for document in documents(file):
                if document["kind"] not in ("InferencePool", "HTTPRoute"):
                    for version in VERSIONS:
                        with self.subTest(file=file, kind=document["kind"], version=version):
                            kubernetes_validate.validate(document, version, strict=True)

    def test_the_pool(self):
        pool = only("inference-pool.yaml", "InferencePool", "pagoda")
        self.assertEqual(pool["apiVersion"], "inference.networking.k8s.io/v1")
        jsonschema.validate(pool["spec"], POOL)
        route = only("inference-pool.yaml", "HTTPRoute", "pagoda")
        backend = route["spec"]["rules"][0]["backendRefs"][0]
        self.assertEqual((backend["group"], backend["kind"], backend["name"]), ("inference.networking.k8s.io", "InferencePool", "pagoda"))


class Consistency(unittest.TestCase):
    def test_selectors_and_ports(self):
        labels, container = pod()["metadata"]["labels"], pod()["spec"]["containers"][0]
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        pool = only("inference-pool.yaml", "InferencePool", "pagoda")["spec"]
        service = only("pagoda.yaml", "Service", "pagoda")["spec"]
        for selector in (pool["selector"]["matchLabels"], service["selector"],
                         only("pagoda.yaml", "Deployment", "pagoda")["spec"]["selector"]["matchLabels"],
                         only("pagoda.yaml", "PodDisruptionBudget", "pagoda")["spec"]["selector"]["matchLabels"]):
            self.assertEqual(selector.items() - labels.items(), set())
        self.assertEqual([each["number"] for each in pool["targetPorts"]], [ports["http"]])
        self.assertEqual(service["ports"][0]["targetPort"], "http")
        self.assertEqual(container["args"][container["args"].index("--http") + 1], f"0.0.0.0:{ports['http']}")
        picker = only("inference-pool.yaml", "Service", pool["endpointPickerRef"]["name"])["spec"]
        self.assertIn(pool["endpointPickerRef"]["port"]["number"], [each["port"] for each in picker["ports"]])
        self.assertEqual(picker["selector"].items() - pod("inference-pool.yaml", "pagoda-epp")["metadata"]["labels"].items(), set())

    def test_live_requests_have_the_time_that_they_may_take(self):
        spec, args = pod()["spec"], pod()["spec"]["containers"][0]["args"]
        sleep = int(spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
        self.assertGreater(spec["terminationGracePeriodSeconds"], sleep + int(args[args.index("--drain-timeout") + 1]))

    def test_the_user_is_that_of_the_image(self):
        with open(dockerfile) as file:
            user = re.search(r"^USER (\d+):(\d+)", file.read(), re.MULTILINE)
        security = pod()["spec"]["securityContext"]
        self.assertEqual((security["runAsUser"], security["runAsGroup"]), (int(user[1]), int(user[2])))
        self.assertTrue(security["runAsNonRoot"])


class Running(unittest.TestCase):
    """A server with the arguments of the manifest, but for the model's place and the address."""

    @classmethod
    def setUpClass(cls):
        args = pod()["spec"]["containers"][0]["args"]
        assert args[0] == "serve" and args[1:3] == ["--model", "/model"], args
        flags = [each for i, each in enumerate(args) if i > 2 and not {each, args[i - 1]} & {"--http", "--listen"}]
        cls.server = cls.enterClassContext(Server(pagoda, model, *flags, "--kv-cache-memory", "0.1", "--enable-lora"))

    def test_probes(self):
        container = pod()["spec"]["containers"][0]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            self.assertEqual(container[probe]["httpGet"]["port"], "http")
            self.assertEqual(self.server.request("GET", container[probe]["httpGet"]["path"])[0], 200, probe)
        self.assertNotEqual(container["livenessProbe"]["httpGet"]["path"], "/health")

    def test_the_model_has_its_name(self):
        args = pod()["spec"]["containers"][0]["args"]
        self.assertEqual([each["id"] for each in self.server.json("GET", "/v1/models")["data"]],
                         [args[args.index("--served-model-name") + 1]])

    def test_the_picker_reads_metrics_that_there_are(self):
        config = yaml.safe_load(only("inference-pool.yaml", "ConfigMap", "pagoda-epp")["data"]["config.yaml"])
        plugins = {each["type"]: each.get("parameters", {}) for each in config["plugins"]}
        engine = plugins["core-metrics-extractor"]["engineConfigs"][0]
        self.assertEqual({engine["name"], plugins["core-metrics-extractor"]["defaultEngine"]},
                         {pod()["metadata"]["labels"]["llm-d.ai/engine-type"]})
        status, _, text = self.server.request("GET", plugins["metrics-data-source"]["path"])
        self.assertEqual(status, 200)
        samples = {line.split("{")[0]: line for line in text.decode().splitlines() if not line.startswith("#")}
        for name in [value for key, value in engine.items() if key.endswith("Spec")]:
            self.assertIn(name, samples)
        for label in ("block_size=", "num_gpu_blocks="):
            self.assertIn(label, samples[engine["cacheInfoSpec"]])
        for label in ("max_lora=", "running_lora_adapters=", "waiting_lora_adapters="):
            self.assertIn(label, samples[engine["loraSpec"]])
        used = {each["pluginRef"] for each in config["schedulingProfiles"][0]["plugins"]}
        self.assertEqual(used - set(plugins), set())


if __name__ == "__main__":
    pagoda, model, repository = sys.argv[1:4]
    folder = os.path.join(repository, "packaging", "kubernetes")
    dockerfile = os.path.join(repository, "packaging", "Dockerfile")
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
