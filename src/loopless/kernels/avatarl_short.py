"""AvataRL over a short vocabulary in JAX: every token an action, of which some are present.

Where a vocabulary is hardly longer than the actions, to look tokens up and to add to them costs
more than to compute on all of them side by side. Nothing is looked up here, and the gradient is
written in the same pass, chunk by chunk of positions. Imports `arrays`. Tests:
`tests/kernels/test_avatarl_short.py`.
"""

from typing import Any, NamedTuple

from loopless.arrays.library import Library
from loopless.kernels.avatarl_positions import STATS, judged
from loopless.kernels.avatarl_targets import Numbers, rewards

LONGEST, FEWEST = 512, 8  # tokens, and k: with fewer the few places of actions are cheaper


def applies(size: int, k: int) -> bool:
    return size <= LONGEST and k >= FEWEST


class Short(NamedTuple):
    """What is the same for all positions."""

    library: Library
    variant: str
    k: int
    wide: Any
    floor: float
    rate: Any
    beta: Any

    def loss(self, student, z, critic, gold, counted, numbers: Numbers):
        """The mean loss, whose derivative by `student` is told to JAX, and the statistics.

        `z` is the student's logits without a derivative.
        """
        from loopless.arrays import jax_vocabulary as rows

        xp, shape = self.library.xp, gold.shape
        positions = gold.size if counted is None else counted.sum()
        share = xp.ones((), self.wide) / xp.maximum(positions, 1)
        spread = (
            _spread(xp, numbers.reality_weight, shape),
            _spread(xp, numbers.critic_weight, shape),
        )

        def chunk(z, critic, gold, counted, reality, mentor):
            own = numbers._replace(
                reality_weight=numbers.reality_weight if reality is None else reality,
                critic_weight=numbers.critic_weight if mentor is None else mentor,
            )
            return self._chunk(z, critic, gold, counted, own, share)

        sheets, gradient = rows.by_rows(chunk, z, critic, gold, counted, *spread)
        loss, *stats = sheets.sum(0) * share
        return rows.written(student, loss, gradient), dict(zip(STATS, stats, strict=True))

    def _chunk(self, z, critic, gold, counted, numbers: Numbers, share):
        """Loss and statistics [N, 7] of positions [N, V], 0 where not counted, and the gradient."""
        from loopless.arrays import jax_vocabulary as rows

        xp = self.library.xp
        dtype = z.dtype
        of_student = rows.columns(z, gold, self.k, self.rate, self.floor)
        of_critic = rows.columns(critic, gold, self.k, 1.0, 0.0)
        is_gold = xp.arange(z.shape[-1])[:, None] == gold
        present = of_student.among | of_critic.among | is_gold
        log_mentor = of_critic.log_pi.astype(self.wide)
        present, log_mentor = rows.kept((present, log_mentor))
        given = rewards(self.library, self.variant, log_mentor, present, is_gold, numbers)
        found = judged(
            self.library,
            self.variant,
            rows.kept(given),
            of_student.log_pi.astype(self.wide),
            present,
            is_gold,
            of_student.entropy.astype(self.wide),
            of_student.mean.astype(self.wide),
            self.rate,
            self.beta,
        )
        gradient = rows.slope_of(of_student.log_pi, found.alpha, found.bonus, self.floor)
        gradient = (gradient - found.less) * share
        sheet = xp.stack([found.losses, *found.stats.values()])
        if counted is not None:
            gradient, sheet = xp.where(counted, gradient, 0), xp.where(counted, sheet, 0)
        return sheet.T, rows.turned(gradient.astype(dtype))


def _spread(xp, weight, shape):
    """A weight of each position; None where there is one for all."""
    return None if weight is None or weight.ndim == 0 else xp.broadcast_to(weight, shape)
