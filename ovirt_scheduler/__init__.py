"""An external scheduler for oVirt: filters, cost functions and balances as small Python plugins."""

__version__ = "1.0.0"
