"""Soft and hard limits, of a call and for good."""

from __future__ import annotations

from tests.support.forking import run


def test_the_limits_of_a_call_hold_for_good():
    """Soft and hard, but for processor time, which warns a second before it kills."""
    shown = run("""
limits.set_soft_and_hard(Limits(timeout=1.0, memory=64 << 20, cpu=7, open_files=50))
for name in ("CPU", "NOFILE", "CORE"):
    print(name, *resource.getrlimit(getattr(resource, f"RLIMIT_{name}")))
soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
print(soft == hard, (64 << 20) <= soft < (64 << 20) + (256 << 20))
""")
    assert shown == ["CPU 7 8", "NOFILE 50 50", "CORE 0 0", "True True"]


def test_no_limit_is_set_above_the_hard_one_in_force():
    """An administrator's lower one stays; asking for more is no error."""
    shown = run("""
resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 60))
limits.set_soft_and_hard(Limits(timeout=1.0, memory=1 << 50, cpu=7, open_files=256))
print(*resource.getrlimit(resource.RLIMIT_CPU))
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
""")
    assert shown == ["5 5", "60 60"]


def test_memory_is_limited_above_what_the_process_has():
    """Within it there is room, beyond it MemoryError, and after the limit room again."""
    shown = run("""
held = bytearray(100 << 20)
limits.limit_memory(50 << 20)
few = bytearray(20 << 20)
try:
    many = bytearray(60 << 20)
except MemoryError:
    print("refused")
limits.lift_soft()
many = bytearray(60 << 20)
soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
print(soft == hard)
""")
    assert shown == ["refused", "True"]
