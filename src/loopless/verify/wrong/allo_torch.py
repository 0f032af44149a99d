"""ALLO's loss that goes wrong, in PyTorch."""

import torch


def gradient_on_both_sides(phi, phi_next, psi, duals, barrier):
    """The right number; but earlier features are moved by later ones."""
    eye = torch.eye(phi.shape[1], dtype=phi.dtype)
    errors = torch.tril(phi.T @ phi / len(phi) - eye)
    others = torch.tril(psi.T @ psi / len(psi) - eye).detach()
    graph = 0.5 * ((phi - phi_next) ** 2).sum(1).mean()
    q = 2.0 * (errors * others).sum()
    pulled = (duals.detach() * errors).sum() + barrier * q
    raised = (duals * errors.detach()).sum() + barrier * q.abs().detach()
    return graph + pulled - raised
