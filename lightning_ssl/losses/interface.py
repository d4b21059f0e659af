"""What can be used as a pair importance: an `Importance`, or anything that is called with (d2_pos, d2_neg, valid).

A class that inherits from `Importance` has `rows` too, and the kernel is faster with them.
"""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from lightning_ssl.base.checks import UserError, require
from lightning_ssl.base.user_code import name_of, place_of, place_of_error, reason
from lightning_ssl.losses.rows import Negatives, Rows, check_distances

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Importance"]

ARGUMENTS = ("d2_pos", "d2_neg", "valid")


def call_of(cls: type) -> Callable[..., Any] | None:
    """The `__call__` that a class defines. `cls.__call__` would find that of the metaclass."""
    return next((vars(base)["__call__"] for base in cls.__mro__ if "__call__" in vars(base)), None)


def require_importance(importance: Any) -> None:
    """Refuse anything that cannot be called with (d2_pos, d2_neg, valid)."""
    usable = callable(importance) and not isinstance(importance, type)
    require(usable, "importance", importance, "an Importance, such as Entropy(), or a function")
    if wrong := wrong_importance(importance):
        raise UserError(f"importance={name_of(importance)}: {wrong}")
    if held := trainable_of(importance):
        needs = "its derivative is unknown; declare `learned`, as Sigmoid does, or set requires_grad=False"
        raise UserError(f"importance={name_of(importance)}: it holds the parameter {held}, and {needs}")


def trainable_of(importance: Any) -> str | None:
    """The name of a parameter that an importance holds and that would silently stay constant; None if there is none."""
    if isinstance(importance, nn.Module):
        named = dict(importance.named_parameters())
    else:
        named = {name: x for name, x in getattr(importance, "__dict__", {}).items() if isinstance(x, nn.Parameter)}
    return next((name for name, x in named.items() if x.requires_grad), None)


def wrong_importance(found: Any) -> str | None:
    """Why an object of the user's own that does not inherit from `Importance` cannot be used as one; None if it can."""
    is_class, accepted = inspect.isclass(found), f"it must accept ({', '.join(ARGUMENTS)})"
    function = call_of(found) if is_class else found
    if function is None or not callable(function):
        return f"{place_of(found)} has no __call__; {accepted}"
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin without a signature
        return None
    try:
        signature.bind(*([None] if is_class else []), *ARGUMENTS)  # None: self
    except TypeError:
        return f"{place_of(found)}: {accepted}; its signature is {signature}"
    return None


def call_checked(importance: Any, key: str, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor) -> Tensor:
    """Call any importance. An error of the user's code names its file and line; α must have the shape of d2_neg."""
    name = name_of(importance)
    try:
        alpha = importance(d2_pos, d2_neg, valid)
    except Exception as error:
        if place_of_error(error) is None or isinstance(error, torch.OutOfMemoryError):
            raise
        raise UserError(f"{key}={name}: {reason(error)}") from error
    expected = f"expected a tensor of d2_neg's shape {tuple(d2_neg.shape)}"
    if not isinstance(alpha, Tensor):
        raise UserError(f"{key}={name}: {place_of(importance)}: it returned {type(alpha).__name__}; {expected}")
    if alpha.shape != d2_neg.shape:
        raise UserError(f"{key}={name}: {place_of(importance)}: it returned shape {tuple(alpha.shape)}; {expected}")
    return alpha


def refuse_second_derivative(who: str) -> None:
    """Raise in a backward pass with create_graph=True, where the gradient would silently be a constant."""
    if torch.is_grad_enabled():
        raise RuntimeError(f"create_graph=True: {who} can be differentiated once; the gradient is a closed form")


class Sums(NamedTuple):
    """Sums over some anchors, from which the derivatives of learned parameters follow."""

    pair_value: Tensor  # Σ_i [a_i d2_pos_i − Σ_j α_ij d2_neg_ij]
    attraction: Tensor  # Σ_i a_i
    row_sum: Tensor  # Σ_ij α_ij


class Importance(ABC):
    """A rule for the weight of every negative pair: importance(d2_pos, d2_neg, valid=None) → α (M, K).

    A subclass defines `rows`. Any function or class with the same signature can be used in its place.

    >>> from lightning_ssl.losses.importance import Direct
    >>> rows = Direct(normalize=False).rows(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]), Negatives(None))
    >>> rows.row_sum
    tensor([1.7275])
    """

    symbols: ClassVar = {"tau": "τ"}
    wrong_part = staticmethod(wrong_importance)
    """Why an object of another class cannot be used in its place (base/tree.py)."""
    is_loss: ClassVar[bool] = False
    """Whether it stands for a loss, so that `PairLoss` returns the value of this loss and not of the pair form."""

    @property
    def uses_clean_view(self) -> bool:
        """Whether d2_neg must be the distances of the un-augmented samples. A subclass may set it as an attribute."""
        return False

    @property
    def streams(self) -> bool:
        """Whether `log_kernel` and `row_sum` define α, as in `Streaming`."""
        return False

    @property
    def learned(self) -> tuple[str, ...]:
        """The names of the attributes that are trained. `PairLoss` owns a parameter for each, which starts at 0."""
        return ()

    def with_learned(self, learned: Mapping[str, Tensor]) -> Self:
        """The same rule with its trained attributes at the present values of their parameters; at 0 as constructed."""
        return self

    def learned_gradients(self, sums: Sums) -> dict[str, Tensor]:
        """The derivatives of the loss by the parameters, with the sums and the results over some anchors."""
        return {}

    def for_batch(self, d2_pos: Tensor) -> Self:
        """The same rule with what it takes from the d2_pos of the whole batch, of all ranks: (M,)."""
        return self

    def altered(self, **values: Any) -> Self:
        """A copy with other attributes, without the checks of the constructor: a tensor can stand for a number."""
        made = copy.copy(self)
        vars(made).update(values)
        return made

    @abstractmethod
    def rows(self, d2_pos: Tensor, d2_neg: Tensor, negatives: Negatives) -> Rows:
        """Whole rows of α from (M,) and (M, K). It may overwrite d2_neg."""

    def __call__(self, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None = None) -> Tensor:
        check_distances(d2_pos, d2_neg, valid)
        wide = torch.promote_types(d2_neg.dtype, torch.float32)
        own = d2_neg.to(wide) if wide != d2_neg.dtype else d2_neg.clone()
        d2_pos = d2_pos.to(wide)
        alpha = self.for_batch(d2_pos).rows(d2_pos, own, Negatives(valid)).alpha
        if valid is not None:
            alpha = alpha.masked_fill(~valid, 0.0)
        return alpha.to(d2_neg.dtype)

    def vjp(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        """∂/∂d2_neg_ij Σ_k cotangent_ik α_ik with a fixed cotangent, (M, K). `backprop_alpha` adds it to α."""
        raise UserError(f"backprop_alpha=True: {type(self).__name__} has no derivative of its weights to propagate")
