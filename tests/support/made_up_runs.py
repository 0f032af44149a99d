"""Make logs of runs that never happened, for the tests of pictures."""

import json
from pathlib import Path

import numpy as np


def rows(count=200, steps=500_000, seeds=1, seed=0, evaluations=10, events=()) -> list[dict]:
    """Return the rows of a log: a learning curve, with every other metric beside it."""
    generator = np.random.default_rng(seed)
    found = [{"step": 0, "time": 0.0, "kind": "event", "event": "start", "message": ""}]
    for number in range(1, count + 1):
        step = steps * number // count
        level = 20 + 460 / (1 + np.exp(6 - 14 * number / count + generator.normal(0, 0.3, seeds)))
        loss = np.exp(generator.normal(-4 * number / count, 0.3, seeds))

        def said(values):
            values = np.round(values, 4)
            return values.tolist() if seeds > 1 else float(values[0])

        found.append(
            {
                "step": step,
                "time": float(number),
                "kind": "train",
                "return_mean": said(level),
                "return_min": said(0.7 * level),
                "return_max": said(1.2 * level),
                "length_mean": said(level),
                "loss": said(loss),
                "td_error": said(np.sqrt(loss)),
                "q_mean": said(level / 5),
                "policy_loss": said(-0.01 * loss),
                "value_loss": said(2 * loss),
                "entropy": said(0.2 + loss / 3),
                "approximate_kl": said(loss / 100),
                "clip_fraction": said(loss / 5),
                "explained_variance": said(1 - loss),
                "clip": 0.2 - 0.1 * number / count,
                "gradient_norm": said(3 * loss),
                "graph_loss": said(loss),
                "similarity_mean": said(1 - loss / 3),
                "eigenvalue_error": said(loss / 4),
                "orthogonality_error": said(loss / 5),
                "barrier": said(1 + level / 100),
                "hitting_time_correlation": said(1 - loss / 2),
                "validation_loss": said(3 + loss),
                "critic_loss": 3.1,
                "token_trigram_loss": 2.8,
                "validation_per_character": said(1.3 + loss / 2),
                "critic_per_character": 1.35,
                "token_trigram_per_character": 1.31,
                "character_trigram_per_character": 1.79,
                "gold_reward": said(0.9 - loss / 9),
                "gold_rewarded": said(1 + 0 * loss),
                "kept": said(1 + loss),
                "actions": said(5 + loss),
                "kl": said(1 + loss),
                "tokens_per_second": said(30_000 + level),
                "epsilon": max(0.05, 1 - 2 * number / count),
                "learning_rate": 1e-3,
                "steps_per_second": float(18_000 + generator.normal(0, 500)),
                "updates_per_second": float(1800 + generator.normal(0, 50)),
                "time_env": 0.35,
                "time_act": 0.12,
                "time_learn": 0.45,
                "time_log": 0.02,
                "time_other": 0.06,
            }
        )
        if evaluations and number * evaluations // count > (number - 1) * evaluations // count:
            found.append(
                {
                    "step": step,
                    "time": float(number),
                    "kind": "eval",
                    "eval_return": said(level),
                    "eval_return_std": said(0.1 * level),
                    "eval_return_min": said(0.8 * level),
                    "eval_return_max": said(1.05 * level),
                }
            )
    found += [
        {"step": step, "time": 0.0, "kind": "event", "event": kind, "message": ""}
        for step, kind in events
    ]
    return found


def write(folder: Path, found: list[dict], config: dict | None = None) -> Path:
    """Write a run folder with these rows, and return it."""
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))
    if config is not None:
        import tomli_w

        (folder / "config.toml").write_text(tomli_w.dumps(config))
        (folder / "run.json").write_text(json.dumps({"format": 1, "trainer": "dqn"}))
    return folder
