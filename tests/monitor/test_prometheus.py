"""The real Prometheus scrapes a monitor that reads a real trace: every query of the dashboard, every rule, an alert."""

from __future__ import annotations

import json
import math
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from reef_ref import events, rank_events
from reef_ref.engines.simulated import Fault
from reef_ref.monitor.metrics import TABLE, Kind
from reef_ref.sglang.events import EventSink
from tests.conformance.world import Layout
from tests.monitor.deployments import STARTED, Rank, as_lines, trace
from tests.monitor.test_http_status import monitor

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "reef-ref.json"
PATIENCE = 240
"""Looks at something that is to become so, a quarter of a second apart."""
PROVENANCE = {"mode": "report", "load_id": "life1:1"}
VARIABLES = {"$__rate_interval": "1m", "$__range": "1m", "$instance": ".*"}

real = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="Prometheus is not installed (Debian's package prometheus)",
)


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def queries() -> list[tuple[str, str]]:
    """Every query of the dashboard with its panel's title, its variables filled in as Grafana would."""
    found = []
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            query = target["expr"]
            for name, value in VARIABLES.items():
                query = query.replace(name, value)
            found.append((panel["title"], query))
    return found


# Without Prometheus.


def test_queries_name_only_metrics_that_there_are() -> None:
    exposed = {one.exposed for one in TABLE if one.kind is not Kind.HISTOGRAM}
    exposed |= {f"{one.exposed}_bucket" for one in TABLE if one.kind is Kind.HISTOGRAM}
    texts = [*(query for _, query in queries()), *(rule["expr"] for rule in rules())]
    variables = json.loads(DASHBOARD.read_text())["templating"]["list"]
    texts += [variable["query"] for variable in variables]
    named = {name for text in texts for name in re.findall(r"reef_ref_\w+", text)}
    assert named <= exposed
    assert len(named) > 15


def test_every_alert_says_what_to_do_and_how_much_it_matters() -> None:
    for rule in rules():
        assert len(rule["annotations"]["action"]) > 60, rule["alert"]
        assert rule["annotations"]["summary"].endswith("."), rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]


def test_every_alert_has_a_story_in_which_it_fires() -> None:
    told = yaml.safe_load((Path(__file__).parent / "alerts_test.yaml").read_text())
    fires = {c["alertname"] for t in told["tests"] for c in t["alert_rule_test"] if c.get("exp_alerts")}
    assert fires == {rule["alert"] for rule in rules()}


def test_every_panel_is_explained_and_has_its_own_place() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["description"].endswith("."), panel["title"]
        at = panel["gridPos"]
        places = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not places & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= places
    assert len({panel["id"] for panel in panels}) == len(panels)


# With Prometheus's own tool.


def promtool(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *words], cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


@real
def test_promtool_finds_nothing_wrong_with_the_rules(tmp_path: Path) -> None:
    done = promtool("check", "rules", RULES, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules())} rules found" in done.stdout


@real
def test_promtool_sees_each_alert_fire_for_its_cause(tmp_path: Path) -> None:
    """Without what they say to people, which would have to be written a second time."""
    told = yaml.safe_load(RULES.read_text())
    for group in told["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(told))
    shutil.copy(Path(__file__).parent / "alerts_test.yaml", tmp_path)
    done = promtool("test", "rules", "alerts_test.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@real
def test_promtool_notices_an_alert_that_does_not_fire(tmp_path: Path) -> None:
    told = yaml.safe_load(RULES.read_text())
    for group in told["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]
            rule["expr"] = rule["expr"].replace("900", "9000")
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(told))
    shutil.copy(Path(__file__).parent / "alerts_test.yaml", tmp_path)
    done = promtool("test", "rules", "alerts_test.yaml", cwd=tmp_path)
    assert done.returncode != 0
    assert "PublicationStuck" in done.stdout + done.stderr


# With Prometheus itself.


@dataclass
class Server:
    """A Prometheus that scrapes and evaluates every second."""

    client: httpx.Client

    def get(self, path: str, **query: str) -> Any:
        """An answer's data; `AssertionError` if the question was wrong."""
        answer = self.client.get(f"/api/v1/{path}", params=query).json()
        assert answer["status"] == "success", (query, answer.get("error"))
        return answer["data"]

    def values(self, query: str) -> list[float]:
        """What a query finds now, without what is no number."""
        values = [float(one["value"][1]) for one in self.get("query", query=query)["result"]]
        return [value for value in values if not math.isnan(value)]

    def alerts(self) -> dict[str, str]:
        """Alerts that are active, and their state."""
        return {one["labels"]["alertname"]: one["state"] for one in self.get("alerts")["alerts"]}


def becomes(what: str, holds: Callable[[], Any], found: object = "") -> None:
    """Wait until something holds; if it does not, `found` says what there is instead."""
    for _ in range(PATIENCE):
        if holds():
            return
        time.sleep(0.25)
    pytest.fail(f"{what}: not within {PATIENCE} looks; {found}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as end:
        return int(end.getsockname()[1])


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Server]:
    """Scrapes `target`, with the rules as they are shipped."""
    port = free_port()
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s", "scrape_timeout": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "reef-ref", "static_configs": [{"targets": [target]}]}],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    log = folder / "prometheus.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10)

    def ready() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            return client.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    try:
        becomes("Prometheus is ready", ready)
        yield Server(client)
    finally:
        client.close()
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)


@real
def test_prometheus_evaluates_every_query_and_an_injected_violation_fires_an_alert(tmp_path: Path) -> None:
    """A life in two halves: it starts and is scraped, then it publishes, fails, recovers, and serves a stale prefix."""
    lines = trace(tmp_path, Layout(engines=2), (True, False), {20: Fault.FAILS_BEFORE})
    half = next(n for n, line in enumerate(lines) if isinstance(line.event, events.BeginTraining))
    told, ranks = tmp_path / "told.ndjson", [tmp_path / "rank0.ndjson", tmp_path / "rank1.ndjson"]
    told.write_text("".join(f"{line.to_json()}\n" for line in lines[:half]))
    rank = Rank(7)
    ranks[0].write_bytes(as_lines([rank.start()]))
    counters = {"slots_checked": 0}
    sink = EventSink(str(ranks[1]), pid=8, rank=0, engine=1, counters=lambda: counters, beat_s=0.2)
    sink.emit(rank_events.Start, **STARTED, sharing=True, provenance=PROVENANCE)
    options = ["--engines", "2", "--coordinator", str(told), "--http", "0"]
    options += [word for slot, file in enumerate(ranks) for word in ("--engine", f"{slot}={file}")]
    try:
        with monitor(*options) as running, prometheus(tmp_path, running.url.removeprefix("http://")) as server:
            becomes("the first half is scraped", lambda: server.values("reef_ref_possible_states > 0"))
            becomes(
                "nothing is known to be stale", lambda: server.values('reef_ref_engine_freshness{freshness="fresh"}')
            )
            assert server.values('sum(reef_ref_engine_freshness{freshness="fresh"})') == [2]
            becomes("rules are evaluated", lambda: all(one["health"] == "ok" for one in rules_of(server)))
            becomes("nobody is alarmed", lambda: server.alerts() == {})

            with told.open("a") as stream:
                stream.writelines(f"{line.to_json()}\n" for line in lines[half:])
            rebuilt = 'sum(reef_ref_engines_rebuilt_total{engine="0"})'
            becomes("the second half is scraped", lambda: server.values(rebuilt) == [2])
            # The processes of before are gone; what tells now are those of the new engines.
            counters["slots_checked"] = 500
            sink.close()
            sink = EventSink(str(ranks[1]), pid=18, rank=0, engine=1, counters=lambda: counters, beat_s=0.2)
            sink.emit(rank_events.Start, **STARTED, sharing=True, provenance=PROVENANCE)
            rank = Rank(17)
            with ranks[0].open("ab") as stream:
                stream.write(as_lines([rank.start(), rank.stale(), rank.beat(slots_checked=900, stale_slots=4)]))

            missing = set(queries())

            def none_is_missing() -> bool:
                missing.difference_update([one for one in missing if server.values(one[1])])
                return not missing

            becomes("every query finds something", none_is_missing, missing)
            assert server.values("sum(reef_ref_prefix_slots_checked_total)") == [1400]
            becomes("the alert fires", lambda: server.alerts().get("StalePrefixServed") == "firing")
            assert set(server.alerts()) == {"StalePrefixServed", "EngineStale"}
            evaluated = rules_of(server)
            assert {one["name"]: (one["health"], one.get("lastError", "")) for one in evaluated} == {
                rule["alert"]: ("ok", "") for rule in rules()
            }
            said = next(one for one in server.get("alerts")["alerts"] if one["labels"]["alertname"] == "EngineStale")
            assert said["annotations"]["summary"].startswith("Engine 0 holds prefixes of older weights")
            targets = server.get("targets")["activeTargets"]
            assert [(one["health"], one["lastError"]) for one in targets] == [("up", "")]
            code, told_by_it = running.stop()
    finally:
        sink.close()
    assert code == 1
    assert [one["property"] for one in told_by_it if one["monitor"] == "violation"] == ["no_stale_hit"]


def rules_of(server: Server) -> list[dict[str, Any]]:
    return [rule for group in server.get("rules")["groups"] for rule in group["rules"]]
