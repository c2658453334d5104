# SPDX-License-Identifier: GPL-2.0
"""A small JAX program, which takes three quarters of the memory at its start. Prints what it sees
as JSON."""

import json

import jax
import jax.numpy as jnp

x = jnp.ones((2048, 2048))
y = jax.jit(lambda a: (a @ a).sum())(x)
stats = jax.devices()[0].memory_stats()
print(
    json.dumps(
        {"sum": float(y), "limit": stats.get("bytes_limit"), "in_use": stats.get("bytes_in_use")}
    )
)
