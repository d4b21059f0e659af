"""An estimated difference with its p-values and its interval, by Student's t."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

LEVEL = 0.05  # the error rate of each family of decisions
DECIMALS = 2  # of a difference in points, as it is shown


@dataclass(frozen=True)
class Estimate:
    """Differences in points, their standard errors and degrees of freedom: numbers, or arrays of one shape.

    Without a test the standard error is infinite: then T = 0, p = 1, and the interval is the whole line.

    >>> e = Estimate(value=2.0, error=1.0, freedom=4.0)  # P(t_4 > 2) = 0.058
    >>> round(float(e.above()), 3), round(float(e.p()), 3), [round(float(end), 2) for end in e.interval()]
    (0.058, 0.116, [-0.78, 4.78])
    """

    value: Any
    error: Any
    freedom: Any

    @property
    def tested(self) -> Any:
        """Whether there is a standard error."""
        return np.isfinite(self.error)

    def above(self, margin: float = 0.0) -> Any:
        """Return the one-sided p of a difference above the margin, P(t_ν > (value − margin) / error)."""
        return _tail((self.value - margin) / self.error, self.freedom)

    def below(self, margin: float = 0.0) -> Any:
        """Return the one-sided p of a difference below the margin, P(t_ν < (value − margin) / error)."""
        return _tail((margin - self.value) / self.error, self.freedom)

    def p(self, margin: float = 0.0) -> Any:
        """Return the two-sided p of a difference other than the margin, 2 P(t_ν > |value − margin| / error)."""
        return 2 * _tail(np.abs(self.value - margin) / self.error, self.freedom)

    def interval(self, level: float = LEVEL) -> tuple[Any, Any]:
        """Return the interval of confidence 1 − level, value ∓ t_{1 − level/2, ν} error."""
        from scipy.special import stdtrit  # late: scipy takes long to import

        half = stdtrit(self.freedom, 1 - level / 2) * self.error
        return self.value - half, self.value + half


def _tail(t: Any, freedom: Any) -> Any:
    """P(t_ν > t)."""
    from scipy.special import stdtr  # late: scipy takes long to import

    return stdtr(freedom, -t)


def shows_zero(difference: Any) -> Any:
    """Whether a difference is 0.00 in the decimals that are shown. Such a difference is no win, whatever its p.

    >>> bool(shows_zero(-0.0049)), bool(shows_zero(0.0051))
    (True, False)
    """
    return np.abs(difference) < 0.5 * 10**-DECIMALS
