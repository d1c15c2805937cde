#!/usr/bin/env python3
"""A real Prometheus scrapes a running server, and the queries of configs/grafana/pagoda.json are asked of it. Skipped
(77 where that is all that was asked for) where there is no prometheus (Debian: prometheus); that the queries name metrics
which exist is checked in any case. Standard library only.

usage: prometheus_test.py PAGODA MODEL_DIR REPOSITORY [unittest arguments]
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

from exposition import scrape
from ports import free_port
from server import Server

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from skipping_main import skipping_main  # noqa: E402

PROMPT = "Once upon a time there was a little"
KEY = "the-key-of-prometheus"
SCRAPE_INTERVAL_S = 1
pagoda = model = repository = None


def dashboard():
    return json.loads(pathlib.Path(repository, "configs", "grafana", "pagoda.json").read_text())


def queries():
    """(title, expression) of each query of the dashboard, with all variables in their widest meaning."""
    found = []
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"].replace("$__rate_interval", "30s")
            found.append((panel["title"], re.sub(r"\$(model|job)\b", ".*", expression)))
    return found


def names_in(expression):
    """Of metrics; labels stand in braces or behind by."""
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]|by \([^)]*\)", "", expression)
    return set(re.findall(r"\b(?:pagoda:|process_)\w+", bare))


class PoolServer(Server):
    """One of several models."""

    def __init__(self, file, *flags):
        super().__init__(pagoda, model, *flags)
        at = self.command.index("--model")
        self.command[at:at + 2] = ["--models", file]


class Prometheus:
    def __init__(self, target, of_models):
        self.folder = tempfile.TemporaryDirectory()
        self.port = free_port()
        config = pathlib.Path(self.folder.name, "prometheus.yml")
        config.write_text(f"""
global: {{scrape_interval: {SCRAPE_INTERVAL_S}s, scrape_timeout: {SCRAPE_INTERVAL_S}s}}
scrape_configs:
  - job_name: pagoda
    static_configs: [{{targets: ["{target}"]}}]
    authorization: {{credentials: {KEY}}}
  - job_name: pagoda-models
    static_configs: [{{targets: ["{of_models}"]}}]
""")
        self.log = open(os.path.join(self.folder.name, "log"), "w+")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.folder.name}/data",
             f"--web.listen-address=127.0.0.1:{self.port}"], stdout=self.log, stderr=subprocess.STDOUT)

    def get(self, path, **query):
        url = f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            body = json.loads(answer.read())
        assert body["status"] == "success", body
        return body["data"]

    def query(self, expression):
        """The values of an instant query, by their labels' values."""
        return [float(sample["value"][1]) for sample in self.get("/api/v1/query", query=expression)["result"]]

    def close(self):
        self.process.terminate()
        self.process.wait(60)
        self.log.close()
        self.folder.cleanup()


class Servers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = contextlib.ExitStack()
        folder = pathlib.Path(cls.kept.enter_context(tempfile.TemporaryDirectory()))
        keys, models = folder / "keys", folder / "models.json"
        keys.write_text(KEY + "\n")
        models.write_text(json.dumps({"a": {"model": model, "num_device_blocks": 64, "preload": True}}))
        cls.server = cls.kept.enter_context(Server(
            pagoda, model, "--api-key-file", str(keys), "--access-log", str(folder / "access.log"),
            "--otlp-traces-endpoint", "http://127.0.0.1:9/v1/traces"))
        cls.of_models = cls.kept.enter_context(PoolServer(str(models)))

    @classmethod
    def tearDownClass(cls):
        cls.kept.close()

    def ask(self, max_tokens):
        body = {"prompt": PROMPT, "max_tokens": max_tokens, "ignore_eos": True}
        status, _, _ = self.server.request("POST", "/v1/completions", body, {"Authorization": f"Bearer {KEY}"})
        self.assertEqual(status, 200)

    def scrape(self):
        return scrape(self.server, {"Authorization": f"Bearer {KEY}"})


class Dashboard(Servers):
    def test_its_queries_name_metrics_that_exist(self):
        self.assertGreater(len(queries()), 40)
        known = self.scrape().names() | scrape(self.of_models).names()
        for title, expression in queries():
            names = names_in(expression)
            self.assertTrue(names, expression)
            self.assertEqual(names - known, set(), title)
        for variable in dashboard()["templating"]["list"]:
            if variable["type"] == "query":
                self.assertEqual(names_in(variable["query"]["query"]) - known, set())

    def test_its_queries_name_labels_that_exist(self):
        samples = [*self.scrape().samples, *scrape(self.of_models).samples]
        for title, expression in queries():
            for name, selected in re.findall(r"\b((?:pagoda:|process_)\w+)\{([^}]*)\}", expression):
                labels = set().union(*(dict(pairs) for sample, pairs in samples if sample == name))
                labels |= {"job", "instance"}  # given by Prometheus
                self.assertEqual(set(re.findall(r"(\w+)=~?", selected)) - labels, set(), title)
        self.assertTrue(all("{" in expression for _, expression in queries()), "every query selects")


@unittest.skipUnless(shutil.which("prometheus"), "no prometheus (Debian: prometheus)")
class AskedOfPrometheus(Servers):
    def test_they_have_answers(self):
        prometheus = Prometheus(*(f"{each.host}:{each.port}" for each in (self.server, self.of_models)))
        self.addCleanup(prometheus.close)
        deadline = time.monotonic() + 60
        while not self.up(prometheus):
            self.assertLess(time.monotonic(), deadline, "the server was not scraped")
            time.sleep(0.2)
        time.sleep(2 * SCRAPE_INTERVAL_S)  # rates need a scrape from before
        before = self.scrape()
        for max_tokens in (5, 10, 20):
            self.ask(max_tokens)
        time.sleep(3 * SCRAPE_INTERVAL_S)
        for target in prometheus.get("/api/v1/targets")["activeTargets"]:
            self.assertEqual((target["health"], target["lastError"]), ("up", ""))
        after = self.scrape()
        for name in ("pagoda:generation_tokens_total", "pagoda:time_to_first_token_seconds_count",
                     "pagoda:request_generation_tokens_sum"):
            self.assertEqual(prometheus.query(name + '{job="pagoda"}'), [after.get(name)])
        self.assertEqual(after.get("pagoda:generation_tokens_total") - before.get("pagoda:generation_tokens_total"), 35)
        grown = prometheus.query('sum(rate(pagoda:generation_tokens_total[30s]))')
        self.assertGreater(grown[0], 0)
        empty = []
        for title, expression in queries():
            with self.subTest(title, expression=expression):
                if not prometheus.query(expression):
                    empty.append(title)
        self.assertEqual(empty, [], "queries without an answer")
        quantiles = prometheus.query("histogram_quantile(0.5, sum by (le) (rate("
                                     "pagoda:time_to_first_token_seconds_bucket[30s])))")
        self.assertTrue(0 < quantiles[0] < 10, quantiles)

    def up(self, prometheus):
        try:
            return prometheus.query('up{job="pagoda"}') == [1.0]
        except OSError:
            return False  # it does not listen yet


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR REPOSITORY [unittest arguments]")
    pagoda, model, repository = sys.argv[1:4]
    skipping_main("__main__", *sys.argv[4:])
