"""ALLO in plain NumPy, written from the formulae: the compiled step's oracle, in float64.

One step after the other, an encoder call for each batch, derivatives by hand. Losses and
multipliers are the reference's loops.
"""

import numpy as np

from loopless.reference import laplacian

MOMENTS, EPSILON = (0.9, 0.999), 1e-8


class Plain:
    """An MLP with relu: `layers` are (weight [in, out], bias [out])."""

    def __init__(self, config, layers, barrier):
        self.config, d = config, config.components
        self.layers = [(np.array(w, np.float64), np.array(b, np.float64)) for w, b in layers]
        self.first = [tuple(map(np.zeros_like, layer)) for layer in self.layers]
        self.second = [tuple(map(np.zeros_like, layer)) for layer in self.layers]
        self.duals = np.tril(np.full((d, d), config.dual_start))
        self.integral, self.products = np.zeros((d, d)), np.zeros((d, d))
        self.barrier, self.steps = barrier, 0

    def encode(self, x):
        """Features, and the inputs of each layer."""
        inputs = []
        for number, (weight, bias) in enumerate(self.layers):
            inputs.append(x)
            x = x @ weight + bias
            if number < len(self.layers) - 1:
                x = np.where(x > 0, x, 0)
        return x, inputs

    def back(self, inputs, slope):
        """The gradient of each layer, from that of the features."""
        found = []
        for (weight, _), x in zip(self.layers[::-1], inputs[::-1], strict=True):
            found.append((x.T @ slope, slope.sum(0)))
            slope = np.where(x > 0, slope @ weight.T, 0)
        return found[::-1]

    def step(self, table, drawn):
        """Learn from rows of the table; the graph's part of the loss."""
        config = self.config
        names = ("features", "next_features", "other_features", "constraint_features")
        batches = {
            name: self.encode(table[rows].astype(np.float64))
            for name, rows in zip(names, drawn, strict=True)
            if rows is not None
        }
        found = {name: features for name, (features, _) in batches.items()}
        if config.objective == "ggdo":
            slopes = laplacian.ggdo_gradients(**found, barrier=self.barrier)
            _, parts = laplacian.ggdo_loss(**found, barrier=self.barrier)
        else:
            options = {
                "scale": config.scale, "integral": self.integral,
                "proportional_gain": config.proportional_gain,
                "integral_gain": config.integral_gain, "gate_threshold": config.gate_threshold,
                "perturbation": config.perturbation,
            }  # fmt: skip
            slopes = laplacian.allo_gradients(
                **found, duals=self.duals, barrier=self.barrier, **options
            )
            _, parts = laplacian.allo_loss(
                **found, duals=self.duals, barrier=self.barrier, **options
            )
            self.duals, self.barrier, self.integral, self.products = laplacian.allo_updates(
                self.duals, self.barrier, self.integral, self.products, parts,
                dual_rate=config.dual_rate, barrier_rate=config.barrier_rate, scale=config.scale,
                proportional_gain=config.proportional_gain, integral_gain=config.integral_gain,
                integral_decay=config.integral_decay, dual_limit=config.dual_limit,
                barrier_limit=config.barrier_limit,
            )  # fmt: skip
        each = [self.back(inputs, slopes[name]) for name, (_, inputs) in batches.items()]
        self.adam([tuple(map(sum, zip(*layer, strict=True))) for layer in zip(*each, strict=True)])
        return parts["graph"]

    def adam(self, gradients):
        """Kingma & Ba 2015."""
        self.steps += 1
        (one, two), rate = MOMENTS, self.config.learning_rate
        end = self.config.learning_rate_end
        share = min((self.steps - 1) / self.config.steps, 1)
        rate += share * ((rate / 10 if end is None else end) - rate)
        for i, layer in enumerate(zip(self.layers, gradients, strict=True)):
            new = []
            for j, (weight, slope) in enumerate(zip(*layer, strict=True)):
                first = one * self.first[i][j] + (1 - one) * slope
                second = two * self.second[i][j] + (1 - two) * slope**2
                self.first[i] = (*self.first[i][:j], first, *self.first[i][j + 1 :])
                self.second[i] = (*self.second[i][:j], second, *self.second[i][j + 1 :])
                size = np.sqrt(second / (1 - two**self.steps)) + EPSILON
                new.append(weight - rate * first / (1 - one**self.steps) / size)
            self.layers[i] = tuple(new)
