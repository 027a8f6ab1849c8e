"""Settings of Adam and AdamW, for both backends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

ADAM_EPSILON = 1e-8  # torch's default
DECAY = 0.01  # of AdamW: torch's default
DECOUPLED = "AdamW"


class AdamForm(NamedTuple):
    """Constants of Adam (Kingma and Ba 2015, "Adam: a method for stochastic optimization") and
    AdamW (Loshchilov and Hutter 2019, "Decoupled weight decay regularization")."""

    epsilon: float = ADAM_EPSILON
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0


ADAM = AdamForm()


def adam_form(
    optimizer: str, kwargs: Mapping[str, Any], epsilon: float = ADAM_EPSILON
) -> AdamForm | None:
    """Returns the constants of our own Adam for the settings `agent.optimizer` and
    `agent.optimizer_kwargs`; None if they need an optimizer of torch.optim."""
    if optimizer == "adam":
        return AdamForm(epsilon)
    if optimizer != DECOUPLED or not kwargs.keys() <= {"betas", "eps", "weight_decay"}:
        return None
    betas, decay = kwargs.get("betas", ADAM.betas), kwargs.get("weight_decay", DECAY)
    form = AdamForm(kwargs.get("eps", epsilon), betas, decay)
    return form if _is_valid(form) else None  # torch.optim raises the error


def _is_valid(form: AdamForm) -> bool:
    """Returns whether torch.optim accepts these constants, which come from a user."""
    try:
        (beta_1, beta_2), others = form.betas, (form.epsilon, form.weight_decay)
        return 0 <= beta_1 < 1 and 0 <= beta_2 < 1 and min(others) >= 0
    except (TypeError, ValueError):  # not two betas, or not numbers
        return False
