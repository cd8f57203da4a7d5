"""A configuration of hud-vf-gym as YAML that people like to read."""

from io import StringIO

from hud_tui.older.gym import GymConfig
from hud_tui.older.yaml_text import round_trip, writable

COMMENTS = {
    "job": "How the run is called on HUD",
    "system_prompt": "What the model is told; keep it in step with the actions below",
    "action_mappings": "From the model's action to the tool's arguments",
    "parser": "How an answer's form is scored",
    "rubric": "What a rollout's reward is made of; the weights sum to 1",
}


def gym_text(config: GymConfig, about: str) -> str:
    """
    Args:
        config: What is written; reading the text gives it again.
        about: One line for the head of the file.
    """
    from ruamel.yaml.comments import CommentedMap

    root = CommentedMap(writable(config.plain()))
    root.yaml_set_start_comment(about)
    for key, comment in COMMENTS.items():
        if key in root:
            root.yaml_set_comment_before_after_key(key, before="\n" + comment)
    out = StringIO()
    round_trip().dump(root, out)
    return out.getvalue()
