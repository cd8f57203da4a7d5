"""The fields of an RL configuration of hud 0.4: kinds, bounds, defaults, and what each became.

Source: the ``Config`` of hud 0.4's trainer (model, training, actor), its defaults with it.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["whole", "number", "flag", "text", "texts", "betas"]
Path = tuple[str, ...]


@dataclass(frozen=True)
class Spec:
    """One field."""

    kind: Kind
    default: object
    why: str = ""
    """Why it has no equivalent; empty where it has one."""
    to: str = ""
    """The run parameter that it became."""
    same: object = None
    """The value that today's runs have anyway."""
    changes: bool = False
    """Whether its default too trained in another way than runs do now."""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    secret: bool = False


HARDWARE = "the service decides what it trains on"
ADAPTER = "the service decides the adapter's size and shape"
MEMORY = "the service decides how it fits into memory"
KEPT = "the service keeps every step as a checkpoint of the model's tree"
BUFFER = "rollouts are trained on once, by the policy that sampled them"
EPISODES = "the service decides how rollouts are run"
WORDS = "it belongs to the tasks: columns of a row, or agent_config"
SERVED = "the service samples from the model's own head"
LOGS = "status, watch and the Live view say it"
ADAM = "a managed run's Adam is the service's; TrainingClient.step takes it"

MODEL: dict[str, Spec] = {
    "base_model": Spec("text", "Qwen/Qwen2.5-VL-3B-Instruct", to="model"),
    "lora_r": Spec("whole", 16, ADAPTER, low=1),
    "lora_alpha": Spec("whole", 32, ADAPTER, low=1),
    "lora_dropout": Spec("number", 0.1, ADAPTER, low=0, high=1),
    "target_modules": Spec("texts", None, ADAPTER),
    "min_pixels": Spec("whole", 200704, "managed runs take no images", low=1),
    "max_pixels": Spec("whole", 401408, "managed runs take no images", low=1),
    "attn_implementation": Spec("text", "flash_attention_2", HARDWARE),
    "use_liger": Spec("flag", True, HARDWARE),
    "gradient_checkpointing": Spec("flag", True, MEMORY),
    "adapter_path": Spec("text", None, "fork a model instead: a fork starts at its head"),
}
TRAINING: dict[str, Spec] = {
    "gpu_type": Spec("text", "A100", HARDWARE),
    "num_gpus": Spec("whole", 2, HARDWARE, low=1),
    "training_steps": Spec("whole", 100, to="steps", low=1),
    "shuffle_dataset": Spec("flag", False, "the service draws the tasks of a step"),
    "save_every_batches": Spec("whole", 1, KEPT, low=1),
    "epochs": Spec("whole", 1, "a run is as long as its steps say", same=1, low=1),
    "batch_size": Spec("whole", 16, to="tasks_per_step", low=1),
    "group_size": Spec("whole", 8, to="group_size", low=1),
    "mini_batch_size": Spec("whole", 1, MEMORY, low=1),
    "update_after_group": Spec("flag", True, "an optimizer step takes all groups of a step"),
    "accumulate_over_minibatches": Spec("flag", False, MEMORY),
    "batch_level": Spec(
        "text", "group", "advantages are those of a group", same="group", choices=("group", "batch")
    ),
    "no_std": Spec(
        "flag",
        False,
        "advantages are centred on the group's mean and not divided by its deviation",
        same=True,
        changes=True,
    ),
    "leave_one_out": Spec(
        "flag",
        True,
        "the mean is the whole group's: a factor of G/(G-1), which a learning rate makes up for",
        same=False,
        changes=True,
    ),
    "buffer_steps": Spec("whole", 8, BUFFER, same=0, low=0),
    "select_strategy": Spec("text", "variance", BUFFER, choices=("recent", "variance", "random")),
    "ppo_mode": Spec("text", "per_token", to="loss_fn", choices=("per_token", "per_trace")),
    "token_agg": Spec(
        "text",
        "mean",
        "losses are sums over tokens: long answers weigh more",
        same="sum",
        changes=True,
        choices=("mean", "sum"),
    ),
    "kl_beta": Spec("number", 0.001, "runs have no KL term", same=0.0, changes=True, low=0),
    "entropy_beta": Spec(
        "number", 0.001, "runs have no entropy term", same=0.0, changes=True, low=0
    ),
    "top_eps": Spec("number", 0.2, "a managed run's clipping is the service's", low=0),
    "bottom_eps": Spec("number", 0.1, "a managed run's clipping is the service's", low=0),
    "lr": Spec("number", 3e-5, to="learning_rate", low=0),
    "grad_clip": Spec("number", 1.0, "gradients are not clipped by their norm", low=0),
    "use_8bit_optimizer": Spec("flag", True, MEMORY),
    "adam_betas": Spec("betas", (0.9, 0.999), ADAM),
    "adam_eps": Spec("number", 1e-8, ADAM, low=0),
}
ACTOR: dict[str, Spec] = {
    "max_steps_per_episode": Spec("whole", 5, EPISODES, low=1),
    "max_parallel_episodes": Spec("whole", 48, EPISODES, low=1),
    "max_new_tokens": Spec("whole", 1024, to="max_tokens", low=1),
    "force_tool_choice": Spec("flag", True, EPISODES),
    "allowed_tools": Spec("texts", None, WORDS),
    "temperature": Spec("number", 0.7, to="temperature", low=0, high=2),
    "system_prompt": Spec("text", None, WORDS),
    "vllm_base_url": Spec("text", None, SERVED),
    "vllm_api_key": Spec("text", None, SERVED, secret=True),
    "episode_timeout_sec": Spec("whole", 600, EPISODES, low=1),
}
TOP: dict[str, Spec] = {
    "job_name": Spec("text", "RL Training", "the service names jobs"),
    "job_id": Spec("text", None, "the service makes a job's id"),
    "stats_interval": Spec("whole", 1, LOGS, low=1),
    "verbose": Spec("flag", False, LOGS),
    "very_verbose": Spec("flag", False, LOGS),
    "out_dir": Spec("text", "./checkpoints", KEPT),
    "adapter_prefix": Spec("text", "cua-grpo-step", KEPT),
    "seed": Spec("whole", 1234, to="seed", low=0, high=2**63 - 1),
}
SECTIONS: dict[str, dict[str, Spec]] = {"model": MODEL, "training": TRAINING, "actor": ACTOR}
FIELDS: dict[Path, Spec] = {
    (section, name): spec for section, specs in SECTIONS.items() for name, spec in specs.items()
} | {(name,): spec for name, spec in TOP.items()}
