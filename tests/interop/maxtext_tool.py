#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MaxText's own trainer and converter on tiny models; with_libraries makes the environment in which this runs.

usage: maxtext_tool.py train MODEL DIR [NAME=VALUE ...]          two steps, in DIR/MODEL/checkpoints
       maxtext_tool.py huggingface MODEL ITEM DIR [NAME=VALUE ...]    ITEM as MaxText writes it for transformers
"""

import os
import pathlib
import sys

os.environ.update(DECOUPLE_GCLOUD='TRUE', JAX_PLATFORMS='cpu', TF_CPP_MIN_LOG_LEVEL='3', CUDA_VISIBLE_DEVICES='')

import maxtext  # noqa: E402
from absl import app  # noqa: E402

TINY = ['override_model_config=true', 'base_emb_dim=16', 'base_num_query_heads=4', 'base_num_kv_heads=2', 'head_dim=8', 'base_mlp_dim=32',
        'base_num_decoder_layers=2', 'vocab_size=64']
EXPERTS = ['num_experts=4', 'num_experts_per_tok=2', 'base_moe_mlp_dim=32']
MODELS = {
    'llama': ['model_name=llama3.1-8b', 'scan_layers=true'],
    'llama-unscanned': ['model_name=llama3.1-8b', 'scan_layers=false', 'weight_dtype=bfloat16'],
    'qwen3-moe': ['model_name=qwen3-30b-a3b', 'scan_layers=true', *EXPERTS],
    'gpt-oss': ['model_name=gpt-oss-20b', 'scan_layers=true', *EXPERTS],
    'gemma2': ['model_name=gemma2-2b', 'scan_layers=true'],
}
HERE = ['hardware=cpu', 'skip_jax_distributed_system=true', 'attention=dot_product', 'dataset_type=synthetic', 'enable_goodput_recording=false']
# A large rate from the first step on, so that no weight is as it was made: the scale of a norm begins as 1, a bias as 0.
TRAIN = ['steps=2', 'checkpoint_period=1', 'async_checkpointing=false', 'per_device_batch_size=1', 'max_target_length=16',
         'learning_rate=0.1', 'warmup_steps_fraction=0', 'learning_rate_schedule_steps=10']


def settings(model, where, more):
    base = pathlib.Path(maxtext.__file__).parent / 'configs/base.yml'
    return [sys.argv[0], str(base), f'run_name={model}', f'base_output_directory={where}', *HERE, *TINY, *MODELS[model], *more]


def train(model, where, *more):
    from maxtext.trainers.pre_train import train as trainer
    app.run(trainer.main, argv=settings(model, where, [*TRAIN, *more]))


def huggingface(model, item, where, *more):
    from maxtext.checkpoint_conversion import to_huggingface as tool

    class Tokenizer:
        """Takes the place of one that would be downloaded."""

        @classmethod
        def from_pretrained(cls, *_, **__):
            return cls()

        def save_pretrained(self, *_, **__):
            pass

    tool.AutoTokenizer = Tokenizer
    app.run(tool.main, argv=settings(model, where, [f'load_parameters_path={item}', *more, '--override_model_architecture']))


if __name__ == '__main__':
    {'train': train, 'huggingface': huggingface}[sys.argv[1]](*sys.argv[2:])
