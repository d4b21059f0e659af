"""Tables of calls that are refused."""

import pytest


def refused(*cases):
    """A test that each call of (call, message) raises a ValueError of one line that matches the message."""

    @pytest.mark.parametrize(("call", "message"), cases)
    def test(call, message):
        with pytest.raises(ValueError, match=message) as refusal:
            call()
        assert len(str(refusal.value).splitlines()) == 1

    return test
