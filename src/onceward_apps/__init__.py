"""Complete systems that run on Onceward.  Each uses the engine's public API and none of the others."""
