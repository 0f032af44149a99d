"""What a page is made of, made up: a result of a benchmark and the folder of a run."""

import json
from dataclasses import replace
from pathlib import Path

from loopless.bench.result import Measurement, Result, Target, save
from loopless.verify.verdicts import Failing, Finding, Report, Timing

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000a49444154789c6300010000050001"
    "0d0a2db40000000049454e44ae426082"
)


def measured(contender, role, value, **changes):
    row = Measurement("shapes", "128×64", contender, "some", role, value=value)
    return replace(row, **changes)


def result(suite="returns", **changes):
    rows = [
        measured("loopless, NumPy", "ours", 1e-5, targets=(Target("≥ 9 × it", 100.0, True),)),
        measured("the plain loop", "reference", 1e-3),
        measured("a peer", "peer", 5e-5),
        measured("a wrong peer", "peer", 2e-6, status="disagrees", reason="off by 3"),
        measured("an absent peer", "peer", None, status="unavailable", reason="no <module>"),
        measured("floor", "floor", 1e-6),
        Measurement("memory", "peak", "loopless", "some", "ours", value=12.0, unit="MB"),
    ]
    machine = {"cpu": "A CPU", "date": "2026-11-16T06:00:00+00:00", "commit": {"id": "abcdef012"}}
    return Result(suite, {"threads": 1, "quick": True}, machine, rows, **changes)


def write_result(path: Path, suite="returns") -> Path:
    save(result(suite), path)
    return path


def write_verdict(path: Path) -> Path:
    columns = ["t", "rewards", "values", "next_values", "your advantages", "right advantages"]
    found = Report(
        "some_module_of_mine:generalised_advantage_estimates",
        "gae",
        {},
        "NumPy, [T, B] arrays",
        [Finding("truncations", "differs", 119, 100)],
        ["Treats truncation as termination."],
        ["It is given one flag."],
        Failing(
            "truncations", {"gamma": "0.5"}, columns, [["0"] * 6, ["0.125"] * 6], [True, False]
        ),
        Timing("128×64", 6e-4, 2e-5),
    )
    path.write_text(json.dumps(found.to_json()))
    return path


def write_run(folder: Path, rows=30, **settings) -> Path:
    """A run of DQN with a learning curve, a picture and a text."""
    (folder / "plots").mkdir(parents=True)
    (folder / "samples").mkdir()
    facts = {"format": 1, "trainer": "dqn", "command": ["loopless", "train"], "commit": "abc123"}
    (folder / "run.json").write_text(json.dumps(facts))
    (folder / "config.toml").write_text('env = "CartPole-v1"\nsteps = 30000\nhidden = [64, 64]\n')
    (folder / "plots" / "eigenvectors.png").write_bytes(PNG)
    (folder / "samples" / "prompt_def.txt").write_text("def f(x):\n    return <b>x</b>\n")
    log = [{"step": 0, "time": 0.0, "kind": "event", "event": "start", "message": ""}]
    for at in range(1, rows + 1):
        values = {"return_mean": 10.0 * at, "return_min": 5.0 * at, "return_max": 12.0 * at}
        shares = {"time_env": 0.25, "time_learn": 0.75}
        loss = {"loss": 2.0**-at, "epsilon": 1 / at}
        log.append({"step": 1000 * at, "time": at, "kind": "train", **values, **shares, **loss})
    log.append({"step": 1000 * rows, "time": rows, "kind": "eval", "eval_return": 487.25})
    log.append({"step": 1000 * rows, "time": 95.0, "kind": "event", "event": "end", "message": ""})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in log))
    return folder
