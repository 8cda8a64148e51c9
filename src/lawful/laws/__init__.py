"""Laws: what each layer promises, how to measure it, and the certificate of a model."""

from lawful.laws._any import ANY_LAWS as ANY_LAWS
from lawful.laws._certificate import Certificate as Certificate
from lawful.laws._check import check as check
from lawful.laws._check import declare as declare
from lawful.laws._check import laws_of as laws_of
from lawful.laws._check import unwrap as unwrap
from lawful.laws._law import Call as Call
from lawful.laws._law import Law as Law
from lawful.laws._law import Measurement as Measurement
from lawful.laws._law import Row as Row
from lawful.laws._testing import assert_lawful as assert_lawful

__all__ = [
    "ANY_LAWS",
    "Call",
    "Certificate",
    "Law",
    "Measurement",
    "Row",
    "assert_lawful",
    "check",
    "declare",
    "laws_of",
    "unwrap",
]
