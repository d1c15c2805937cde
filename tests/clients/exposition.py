"""Prometheus' text format 0.0.4, read strictly. Standard library only."""
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"(?:,|$)')
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """types and helps by family; samples by (name, labels as a frozenset of pairs)."""

    def __init__(self, text):
        assert text.endswith("\n"), "the last line ends"
        self.types, self.helps, self.samples = {}, {}, {}
        family = None
        for line in text[:-1].split("\n"):
            if line.startswith("# HELP "):
                family, self.help = line[7:].split(" ", 1)
                assert family not in self.helps, f"{family} is begun twice"
                self.helps[family] = self.help
            elif line.startswith("# TYPE "):
                name, kind = line[7:].split(" ")
                assert name == family and name not in self.types and kind in ("counter", "gauge", "histogram"), line
                self.types[name] = kind
            else:
                self.read_sample(line, family)
        assert self.types.keys() == self.helps.keys()
        self.check_histograms()

    def read_sample(self, line, family):
        found = SAMPLE.fullmatch(line)
        assert found, f"no sample: {line!r}"
        name, labels, value = found.groups()
        suffixes = ("_bucket", "_sum", "_count") if self.types[family] == "histogram" else ("",)
        assert name in [family + suffix for suffix in suffixes], f"{name} among the samples of {family}"
        pairs, end = {}, 0
        for label in LABEL.finditer(labels or ""):
            assert label.start() == end, f"broken labels: {line!r}"
            pairs[label[1]] = re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), label[2])
            end = label.end()
        assert end == len(labels or ""), f"broken labels: {line!r}"
        key = (name, frozenset(pairs.items()))
        assert key not in self.samples, f"{line!r} is there twice"
        self.samples[key] = float(value)

    def check_histograms(self):
        """Buckets rise to +Inf, which is the count."""
        buckets = {}
        for (name, labels), value in self.samples.items():
            if name.endswith("_bucket") and self.types.get(name[:-7]) == "histogram":
                series = (name[:-7], frozenset(pair for pair in labels if pair[0] != "le"))
                buckets.setdefault(series, []).append((float(dict(labels)["le"]), value))
        for (family, labels), series in buckets.items():
            assert series == sorted(series) and series[-1][0] == float("inf"), f"buckets of {family}: {series}"
            assert [value for _, value in series] == sorted(value for _, value in series), f"{family}: {series}"
            assert self.samples[family + "_count", labels] == series[-1][1], family

    def names(self):
        """Of samples, as queries have them."""
        return {name for name, _ in self.samples}

    def labels_of(self, family):
        """Names of the labels that its samples have."""
        found = [frozenset(dict(labels)) - {"le"} for name, labels in self.samples
                 if name == family or (self.types[family] == "histogram" and name == family + "_count")]
        assert len(set(found)) <= 1, f"samples of {family} have other labels than each other: {found}"
        return set(found[0]) if found else set()

    def get(self, name, **labels):
        """The sum of the samples that have these labels, whatever others they have."""
        return sum(value for (sample, pairs), value in self.samples.items()
                   if sample == name and labels.items() <= dict(pairs).items())


def scrape(server, headers=None):
    status, answered, body = server.request("GET", "/metrics", headers=headers)
    assert status == 200, f"{status} {body[:500]!r}"
    assert answered["content-type"] == CONTENT_TYPE, answered
    return Metrics(body.decode())


def num_actors(server):
    """Actors of the server that have not ended."""
    return int(scrape(server).get("pagoda:actors"))


class Change:
    """What two scrapes differ by."""

    def __init__(self, before, after):
        self.before, self.after = before, after

    def get(self, name, **labels):
        return self.after.get(name, **labels) - self.before.get(name, **labels)

    def histogram(self, family, **labels):
        """(count, sum)"""
        return int(self.get(family + "_count", **labels)), self.get(family + "_sum", **labels)

    def falling(self):
        """Counters, and parts of histograms, that are less than they were."""
        kinds = self.after.types
        def only_rises(name):
            return kinds.get(name, "histogram") != "gauge"
        return {key: (value, self.after.samples.get(key)) for key, value in self.before.samples.items()
                if only_rises(key[0]) and not self.after.samples.get(key, -1) >= value}
