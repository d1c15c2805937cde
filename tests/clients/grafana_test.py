#!/usr/bin/env python3
"""configs/grafana/pagoda.json as Grafana's own model of dashboards reads it (grafana-foundation-sdk, of Grafana 10.1): what
that does not know it drops, so nothing may be missing when it writes the dashboard again.

usage: grafana_test.py PAGODA MODEL_DIR REPOSITORY [unittest arguments]
"""
import json
import pathlib
import sys
import unittest

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import prometheus

repository = None


def differences(ours, theirs, path=""):
    """Where theirs is not ours; what only they have are defaults."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            yield from differences(value, theirs.get(key), f"{path}/{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for i, (a, b) in enumerate(zip(ours, theirs)):
            yield from differences(a, b, f"{path}/{i}")
    elif ours != theirs:
        yield path, ours, theirs


def as_grafana_reads(dashboard):
    return json.loads(JSONEncoder().encode(model.Dashboard.from_json(dashboard)))


class Dashboard(unittest.TestCase):
    def setUp(self):
        self.dashboard = json.loads(pathlib.Path(repository, "configs", "grafana", "pagoda.json").read_text())

    def test_grafana_knows_every_field_of_it(self):
        self.assertEqual(list(differences(self.dashboard, as_grafana_reads(self.dashboard))), [])

    def test_its_queries_are_prometheus_ones(self):
        for panel in model.Dashboard.from_json(self.dashboard).panels:
            for target in getattr(panel, "targets", None) or []:  # a row has none
                self.assertIsInstance(target, prometheus.Dataquery, panel.title)

    def test_fields_that_grafana_does_not_know_are_found(self):
        panel = next(each for each in self.dashboard["panels"] if each["type"] == "timeseries")
        for place in (self.dashboard, panel, panel["options"]["legend"], panel["fieldConfig"]["defaults"]["custom"],
                      panel["targets"][0]):
            place["misspelt"] = 1
            self.assertEqual(len(list(differences(self.dashboard, as_grafana_reads(self.dashboard)))), 1, place)
            del place["misspelt"]


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR REPOSITORY [unittest arguments]")
    repository = sys.argv[3]
    register_default_plugins()
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
