# SPDX-License-Identifier: Apache-2.0
"""Importing this sets JAX up for making checkpoints: CPU, eight devices, 64-bit types."""

import os

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
os.environ.setdefault('XLA_FLAGS', '--xla_force_host_platform_device_count=8')
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

import jax  # noqa: E402

jax.config.update('jax_enable_x64', True)
