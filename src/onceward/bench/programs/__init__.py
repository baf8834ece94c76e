"""The programs that are measured: producers and workers, each in a process of its own.

The benchmark copies this folder, because a peer runs in an environment in which Onceward is not installed.
Modules here import each other relatively, and what a system needs only when that system is measured.
"""
